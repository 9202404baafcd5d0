"""A mkdocs hook: how much the pages and sections count in the search box, and footnotes without marks.

Pages for contributors count less than those for users. The theme prefers the first paragraph of a page to the page's
sections, so sections count more. A page's own `search: boost` is kept. The search index is text without tables, so the
cells and rows of a table are separated by marks in the index, but not on the page. The footnotes of docstrings, `[1]_`
and `.. [1]`, are shown as `[1]`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.plugins import CombinedEvent, event_priority

SECTION = 1.6
BOOSTS = {  # by the beginning of a page's path
    "reference/index": 0.3,
    "reference/cli": 1.0,
    "reference/environment": 1.0,
    "reference/": 0.7,
    "howto/": 1.3,
    "benchmarks/": 0.3,
    "glossary": 0.6,
    "design": 0.4,
    "changelog": 0.3,
    "ladder": 0.6,
    "trust": 0.7,
}
_MARK = re.compile(r"\[(\d+)\]_")
_NOTE = re.compile(r"\s*\.\. \[(\d+)\]")
_CELL_END = re.compile(r"(?=</t[dh]>\s*<t[dh])")
_ROW_END = re.compile(r"(?=</t[dh]>\s*</tr>)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Set the boost of a page that states none."""
    for beginning, boost in BOOSTS.items():
        if page.file.src_uri.startswith(beginning):
            page.meta.setdefault("search", {}).setdefault("boost", boost)
            break
    return markdown


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Remove the marks of footnotes, and begin a line with each footnote."""
    if not page.file.src_uri.startswith("reference/"):
        return html
    html = _MARK.sub(r"[\1]", html)
    return _NOTE.sub(r"<br>[\1]", html).replace("<p><br>[", "<p>[")


@event_priority(100)
def _mark_tables(context: Any, page: Any, **_: Any) -> Any:
    """Put a mark at the end of each cell and row, before the search plugin reads the page."""
    page.unmarked = page.content
    page.content = _ROW_END.sub(";", _CELL_END.sub(" |", page.content))
    return context


@event_priority(-100)
def _restore_tables(context: Any, page: Any, **_: Any) -> Any:
    """Remove the marks, after the search plugin has read the page."""
    page.content = page.unmarked
    return context


on_page_context = CombinedEvent(_mark_tables, _restore_tables)


def on_post_build(config: Any, **_: Any) -> None:
    """Raise the boost of every section in the search index."""
    path = Path(config["site_dir"]) / "search" / "search_index.json"
    index = json.loads(path.read_text())
    for entry in index["docs"]:
        if "#" in entry["location"]:
            entry["boost"] = SECTION * entry.get("boost", 1)
    path.write_text(json.dumps(index, separators=(",", ":")))
