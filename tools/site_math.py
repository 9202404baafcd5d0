"""A mkdocs hook: formulas become MathML when the site is built, so that a page needs no script and no network.

`$...$` and `$$...$$` are found by pymdownx.arithmatex (generic form), which marks them
`<span class="arithmatex">\\(...\\)</span>` and `<div class="arithmatex">\\[...\\]</div>`.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

_MARKED = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def mathml(latex: str, display: str) -> str:
    """Return a formula as MathML; `display` is "inline" or "block"."""
    return convert(latex.strip(), display=display)


def on_page_content(content: str, **_: Any) -> str:
    """Replace every marked formula of a page by MathML."""

    def drawn(found: re.Match[str]) -> str:
        tag, latex = found.group(1), html.unescape(found.group(2))
        return f'<{tag} class="formula">{mathml(latex, "block" if tag == "div" else "inline")}</{tag}>'

    return _MARKED.sub(drawn, content)
