"""A mkdocs hook: charts (SVG) get a dark version for the dark scheme of the site. Pictures (PNG) keep their white paper.

Only the neutral colors change: text, axes, grid and background. Colors that carry meaning stay.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

NEUTRALS = {  # color on light paper -> color on the dark page
    "#ffffff": "#1e2129",
    "#e6e6e6": "#353a46",
    "#b8b8b8": "#5f6675",
    "#6b6b6b": "#a4abba",
    "#222222": "#e6e8ee",
    "#000000": "#e6e8ee",
}
_COLOR = re.compile("|".join(NEUTRALS), re.IGNORECASE)
_IMAGE = re.compile(r'<img ([^>]*?)src="([^"#]*images/[^"#]+)\.svg"([^>]*)>')


def dark(svg: str) -> str:
    """Return a chart in the colors of the dark page."""
    return _COLOR.sub(lambda found: NEUTRALS[found.group().lower()], svg)


def on_page_content(html: str, **_: Any) -> str:
    """Show each chart twice, once per scheme; the theme hides one of them."""
    both = r'<img \1src="\2.svg#only-light"\3><img \1src="\2-dark.svg#only-dark"\3>'
    return _IMAGE.sub(both, html)


def on_post_build(config: Any, **_: Any) -> None:
    """Write the dark version of every chart."""
    for chart in (Path(config.site_dir) / "images").rglob("*.svg"):
        if not chart.stem.endswith(("-dark", "-light")):
            chart.with_name(f"{chart.stem}-dark.svg").write_text(dark(chart.read_text()))
