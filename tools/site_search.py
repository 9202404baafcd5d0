"""A mkdocs hook: how much the pages and sections count in the search box, and footnotes without marks.

Pages for contributors count less than those for users. The theme prefers the first paragraph of a page to the page's
sections, so sections count more. A page's own `search: boost` is kept. The footnotes of docstrings, `[1]_` and
`.. [1]`, are shown as `[1]`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

SECTION = 1.6
BOOSTS = {  # by the beginning of a page's path
    "reference/index": 0.3,
    "reference/cli": 1.0,
    "reference/environment": 1.0,
    "reference/": 0.7,
    "howto/": 1.3,
    "benchmarks/": 0.5,
    "design": 0.4,
    "changelog": 0.3,
    "ladder": 0.6,
    "trust": 0.7,
}
_MARK = re.compile(r"\[(\d+)\]_")
_NOTE = re.compile(r"\s*\.\. \[(\d+)\]")


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


def on_post_build(config: Any, **_: Any) -> None:
    """Raise the boost of every section in the search index."""
    path = Path(config["site_dir"]) / "search" / "search_index.json"
    index = json.loads(path.read_text())
    for entry in index["docs"]:
        if "#" in entry["location"]:
            entry["boost"] = SECTION * entry.get("boost", 1)
    path.write_text(json.dumps(index, separators=(",", ":")))
