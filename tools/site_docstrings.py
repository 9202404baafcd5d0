"""A griffe extension: docstrings become markdown before mkdocstrings shows them.

Parameters, Attributes     a list: **name** text              (lines "name : text", continued by indented lines)
>>> examples               a block of Python
columns of text, pictures  a block as it stands
anything else              is markdown already
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

_SECTION = re.compile(r"^([A-Z]\w+)\n-{3,}\n", re.MULTILINE)
_ENTRY = re.compile(r"^([\w, *]+) : ", re.MULTILINE)
_COLUMNS = re.compile(r"\S {2,}\S|[├└│]")


def markdown(docstring: str) -> str:
    """The docstring as markdown."""
    text = _SECTION.sub(lambda found: f"\n**{found.group(1)}**\n\n", docstring)
    return "\n\n".join(map(_paragraph, re.split(r"\n\s*\n", text)))


def _paragraph(text: str) -> str:
    if text.lstrip().startswith(">>>"):
        return f"```pycon\n{text}\n```"
    if _ENTRY.match(text):
        joined = re.sub(r"\n +", " ", text)
        return _ENTRY.sub(lambda found: f"- `{found.group(1)}`: ", joined)
    lines = text.splitlines()
    if any(map(_COLUMNS.search, lines)) or (lines and lines[0].startswith("    ")):
        return f"```text\n{textwrap.dedent(text)}\n```"
    return text


class Markdown(griffe.Extension):
    """Rewrites every docstring that is loaded."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called once for each module, class and function."""
        if obj.docstring and not obj.is_alias:
            obj.docstring.value = markdown(obj.docstring.value)
