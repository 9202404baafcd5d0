"""A mkdocs hook: the marker `<!-- names -->` of a page becomes a table of all names in the reference.

The names are those that the pages show with `::: kway...`. Each line has a link and the first sentence
of the docstring.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

MARKER = "<!-- names -->"
DOCS = Path(__file__).parents[1] / "docs"
SHOWN = re.compile(r"^::: (kway\.[\w.]+)", re.MULTILINE)


def documented() -> list[str]:
    """Return the full names that the pages of the reference show, sorted by their last part."""
    found = {name for page in sorted(DOCS.rglob("*.md")) for name in SHOWN.findall(page.read_text())}
    return sorted(found, key=lambda name: (name.rpartition(".")[2].lower(), name))


def resolved(name: str) -> Any:
    """Return the module, class, function or constant of a full name."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            value = getattr(value, part)
        return value
    raise ImportError(name)


def names() -> str:
    """Return the table as markdown."""
    lines = ["| name | purpose |", "|---|---|"]
    for name in documented():
        value = resolved(name)
        if inspect.ismodule(value):  # its page has no heading of its own
            continue
        text = (inspect.getdoc(value) or "").strip().split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        text = re.sub(r" ?\[\d+\]_", "", text)  # the footnotes are below the description
        lines.append(f"| [`{name.rpartition('.')[2]}`][{name}] | {text} |")
    return "\n".join(lines)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the marker by the table."""
    return markdown.replace(MARKER, names()) if MARKER in markdown else markdown
