"""Links of the Markdown files outside the site. mkdocs checks those of the site when it is built."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def slug(heading: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def broken(page: Path) -> list[str]:
    """Return the links of a page whose target does not exist."""
    found = []
    for link in LINK.findall(page.read_text()):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE) if target.suffix == ".md" else []
        if not target.exists() or (anchor and anchor not in map(slug, headings)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=lambda p: p.name)
def test_every_link_leads_somewhere(page):
    assert broken(page) == []


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One thing\n[a](#one-thing) [b](#two) [c](missing.png) [d](https://example.org)\n")
    assert broken(page) == ["#two", "missing.png"]
