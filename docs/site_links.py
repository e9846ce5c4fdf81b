"""A hook of the documentation site: links out of `docs/` lead to the repository."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\]\((?P<path>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Turn links to files above `docs/` into links to the repository, where they are shown."""

    def replace(link: re.Match[str]) -> str:
        path = posixpath.normpath(
            posixpath.join("docs", posixpath.dirname(page.file.src_uri), link["path"])
        )
        if path.startswith("docs/"):
            return link[0]
        return f"]({config.repo_url.rstrip('/')}/blob/main/{path}{link['anchor'] or ''})"

    return _LINK.sub(replace, markdown)
