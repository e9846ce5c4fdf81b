"""Safetensors files with a header in JSON and the SHA-256 of all their bytes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from noisynet.runs.encoding import decode_state, encode_state
from noisynet.runs.files import open_file

Arrays = TypeVar("Arrays")

# One key only: the order in which safetensors writes several differs between processes.
_KEY: Final = "noisynet"
_BLANK: Final = b"0" * 64  # in place of the SHA-256 while it is computed
_LONGEST_HEADER: Final = 100_000_000  # of safetensors itself


def seal(
    save: Callable[[Arrays, dict[str, str]], bytes], arrays: Arrays, header: dict[str, Any]
) -> bytes:
    """Return the content of a file; equal arguments are equal bytes.

    Args:
        save: `safetensors.torch.save` or `safetensors.numpy.save`.
        arrays: Tensors or arrays by name.
        header: Everything else, JSON-able.
    """
    text = encode_state({"sha256": _BLANK.decode(), **header}).decode()
    data = save(arrays, {_KEY: text})
    return data.replace(_BLANK, hashlib.sha256(data).hexdigest().encode(), 1)


def unseal(data: bytes) -> dict[str, Any]:
    """Check the content of a file and return its header; safetensors loads the rest.

    Raises:
        ValueError: `data` is not what `seal` returned.
    """
    try:
        length = int.from_bytes(data[:8], "little")
        header = decode_state(json.loads(data[8 : 8 + length])["__metadata__"][_KEY])
        digest: str = header.pop("sha256")
        blanked = data.replace(digest.encode(), _BLANK, 1)
        sound = hashlib.sha256(blanked).hexdigest() == digest
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise ValueError("it does not match its SHA-256")
    return dict(header)


def read_sealed(path: Path) -> tuple[bytes, dict[str, Any]]:
    """Read a file of a run and check it; return its content and its header.

    The lengths in the header are compared with the file's first: a file that was not sealed may be
    larger than the memory.

    Raises:
        RunDamaged: It is not a regular file.
        ValueError: It is not what `seal` returned.
        OSError: It cannot be read.
    """
    with open(open_file(path), "rb") as file:  # noqa: PTH123 - a descriptor
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        try:
            if not 0 < length <= min(_LONGEST_HEADER, size - 8):
                raise ValueError
            entries = json.loads(file.read(length)).items()
            ends = [entry["data_offsets"][1] for key, entry in entries if key != "__metadata__"]
            if 8 + length + max(ends, default=0) != size:
                raise ValueError
            file.seek(0)
            data = file.read(size)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError("it does not match its SHA-256") from error
        except MemoryError as error:
            raise ValueError(f"its {size:,} bytes are more than the memory holds") from error
    return data, unseal(data)
