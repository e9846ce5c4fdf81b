"""Repositories of the Hugging Face Hub, as places of agents.

The client's own environment variables apply, such as `HF_ENDPOINT` and `HF_TOKEN`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from noisynet.extras import extra
from noisynet.runs import RunError

if TYPE_CHECKING:
    from huggingface_hub import HfApi

SCHEME: Final = "hf://"
AGENT_FILE: Final = "agent.safetensors"
_NAME: Final = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")


def check_repository(name: str) -> None:
    """Raise `ValueError` unless `name` is a repository such as "user/name"."""
    match = _NAME.fullmatch(name)
    if match is None or match["revision"]:
        raise ValueError(f"expected a repository as user/name, got {name!r}")


def upload(folder: Path, repository: str, *, private: bool = False, message: str) -> None:
    """Upload the files of a folder in one commit, and make the repository if it does not exist.

    Raises:
        RunError: the Hub refuses, or cannot be reached.
        ImportError: the package `huggingface_hub` is missing.
    """
    check_repository(repository)
    api = _api()
    from huggingface_hub import CommitOperationAdd

    files = sorted(path for path in folder.iterdir() if path.is_file())
    with _hub_errors(f"push to {repository}"):
        api.create_repo(repository, private=private, exist_ok=True)
        operations = [CommitOperationAdd(path.name, path) for path in files]
        api.create_commit(repository, operations, commit_message=message)


def download(name: str) -> Path:
    """Download the agent of a repository, "hf://user/name" or "hf://user/name@revision".

    Only `agent.safetensors` is downloaded, which holds numbers and a configuration but no code.

    Raises:
        RunError: the Hub refuses or cannot be reached, or the repository has no such file.
        ValueError: the name has another form.
        ImportError: the package `huggingface_hub` is missing.
    """
    match = _NAME.fullmatch(name.removeprefix(SCHEME))
    if match is None:
        raise ValueError(f"expected hf://user/name or hf://user/name@revision, got {name!r}")
    api = _api()
    with _hub_errors(f"load {name}"):
        found = api.hf_hub_download(match["repository"], AGENT_FILE, revision=match["revision"])
    return Path(found)


def _api() -> HfApi:
    """The client, which otherwise reads HF_ENDPOINT only when it is imported."""
    with extra("hub"):
        from huggingface_hub import HfApi
    return HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)


@contextmanager
def _hub_errors(doing: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # of several libraries: the client's, HTTP's and the disk's
        lines = [line for line in str(error).splitlines() if line.strip()]
        reason = " ".join(lines[:2]) or type(error).__name__
        raise RunError(f"cannot {doing}: {reason}") from error
