"""A mkdocs hook: a page that would fetch anything from another server when it is read fails the build."""

from __future__ import annotations

import re
from typing import Any

from mkdocs.exceptions import PluginError

_FETCHED = re.compile(r'<(?:script|img|iframe|link rel="(?:stylesheet|preconnect|icon)")[^>]*?="(https?://[^"]+)"')


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Raise an error if the finished page fetches anything from another server."""
    addresses = _FETCHED.findall(output)
    if addresses:
        raise PluginError(f"{page.file.src_uri} fetches {', '.join(addresses)}; keep a copy under docs/ instead")
    return output
