"""Figures as files and as text that an HTML page can carry.

save(figure, "cv.svg")        png or svg, by the name; the file appears only when it is complete
to_svg(figure)                one <svg> element: text stays text, the same figure gives the same bytes
to_data_uri(figure)           for <img src="...">
"""

from __future__ import annotations

import base64
import io
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from kway.errors import InputError
from kway.tables.outputs import replacing

_PNG_DPI = 200  # sharp on screens of two device pixels a pixel
_SETTINGS: dict[str, Any] = {"svg.fonttype": "none", "svg.hashsalt": "kway"}  # text as text; ids the same every time
_ONE_AT_A_TIME = threading.Lock()  # rc_context changes matplotlib's settings for the whole process while it lasts


def save(figure: Figure, path: str | Path) -> Path:
    """Write the figure to `path`, whose ending says the format: .png or .svg."""
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in (".png", ".svg"):
        raise InputError(f"figures are saved as .png or .svg, got {path.name!r}; change the ending of the name")
    content = svg_document(figure) if kind == ".svg" else _png(figure)
    with replacing(path) as draft:
        draft.write_bytes(content)
    return path


def to_svg(figure: Figure, title: str = "") -> str:
    """The figure as one <svg> element for a page; `title` is what screen readers say."""
    return page_svg(svg_document(figure), title)


def page_svg(document: bytes, title: str = "") -> str:
    """The <svg> element of a document.

    The names that matplotlib gives to groups (axes_1, text_3) are dropped, as two figures on a page would share them;
    what other elements refer to keeps its name, made from its content.
    """
    text = document.decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' id="[\w.]+_\d+"', "", text)
    if title:
        opening, rest = text.split(">", 1)
        text = f'{opening} role="img">\n <title>{escape(title)}</title>{rest}'
    return text


def to_data_uri(figure: Figure, kind: str = "svg") -> str:
    """The figure as `data:image/...;base64,...`; `kind` is "svg" or "png"."""
    if kind not in ("svg", "png"):
        raise InputError(f"kind must be 'svg' or 'png', got {kind!r}")
    content, mime = (svg_document(figure), "svg+xml") if kind == "svg" else (_png(figure), "png")
    return f"data:image/{mime};base64,{base64.b64encode(content).decode()}"


def svg_document(figure: Figure) -> bytes:
    """The figure as an SVG file."""
    return _figure_bytes(figure, format="svg", metadata={"Date": None, "Creator": "kway"})


def _png(figure: Figure) -> bytes:
    return _figure_bytes(figure, format="png", dpi=_PNG_DPI, metadata={"Software": "kway"})


def _figure_bytes(figure: Figure, **options: Any) -> bytes:
    out = io.BytesIO()
    with _ONE_AT_A_TIME, rc_context(_SETTINGS), warnings.catch_warnings():
        # class names in any script: the browser has the letters that our font lacks
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        with _laid_out(figure):
            figure.savefig(out, **options)
    return out.getvalue()


@contextmanager
def _laid_out(figure: Figure) -> Iterator[None]:
    """The layout worked out once, where matplotlib would do it for a trial drawing and again."""
    engine = figure.get_layout_engine()
    if engine is None:
        yield
        return
    engine.execute(figure)
    figure.set_layout_engine(None)
    try:
        yield
    finally:
        figure.set_layout_engine(engine)
