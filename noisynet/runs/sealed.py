"""Safetensors files with a header in JSON and the SHA-256 of all their bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

from noisynet.runs.encoding import decode_state, encode_state

Arrays = TypeVar("Arrays")

# One key only: the order in which safetensors writes several differs between processes.
_KEY: Final = "noisynet"
_BLANK: Final = b"0" * 64  # in place of the SHA-256 while it is computed


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
    except (ValueError, LookupError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise ValueError("it does not match its SHA-256")
    return dict(header)
