"""A mkdocs hook: pages of benchmarks have no table of contents beside them, so that their wide tables fit."""

from __future__ import annotations

from typing import Any


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Hide the table of contents of a page below `benchmarks/`."""
    if page.file.src_uri.startswith("benchmarks/"):
        page.meta["hide"] = ["toc"]
    return markdown
