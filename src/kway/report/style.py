"""The look of all figures (palette, font sizes, grid), and figures as files or as part of a page.

    figure = style.figure(height=4.0)          a matplotlib Figure, 640 px wide, constrained layout, no pyplot
    axes = style.dress(figure.subplots(), title="...", x="k", y="accuracy")
    style.legend(axes)
    style.save(figure, "cv.svg")

The style is set on the artists and never in matplotlib's global settings, so that figures drawn in several threads or
in a notebook neither change nor inherit settings.
"""

from __future__ import annotations

import io
import re
import threading
import warnings
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.colors import LinearSegmentedColormap, ListedColormap, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator
from numpy.typing import ArrayLike

from kway.errors import InputError
from kway.tables.outputs import replacing

FIGURE_WIDTH = 6.4  # inches; at 100 dots per inch a figure has 640 px and the fonts below 10 to 15 px
TITLE, TEXT, TINY = 11.0, 9.0, 7.5  # font sizes in points (tests/report: nothing is smaller than 6.5)
INK, MUTED, FAINT, GRID = "#222222", "#6b6b6b", "#b8b8b8", "#e6e6e6"
ACCENT, CONTRAST = "#3f90da", "#e76300"  # right and wrong, chosen and not chosen
ACCENT_INK, CONTRAST_INK = "#1f69ad", "#b04a00"  # the same for text: contrast of at least 4.5 : 1 on white

# ten colors that people with any color vision can distinguish (M. A. Petroff, arXiv:2107.02270)
PALETTE = (
    "#3f90da", "#ffa90e", "#bd1f01", "#832db6", "#94a4a2",
    "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd",
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")  # distinguish classes without color

BLUES = LinearSegmentedColormap.from_list("kway-blues", ["#ffffff", "#c6dcf2", "#3f90da", "#15497d"])
ORANGES = LinearSegmentedColormap.from_list("kway-oranges", ["#ffffff", "#ffd9a8", "#e76300", "#7a1f00"])
DIVERGING = LinearSegmentedColormap.from_list(
    "kway-diverging", ["#15497d", "#3f90da", "#ffffff", "#e76300", "#7a1f00"]
)  # blue below zero, white at it, orange above


def figure(width: float = FIGURE_WIDTH, height: float = 4.0) -> Figure:
    """Return an empty figure whose layout keeps labels inside the page and apart."""
    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06)
    return Figure(figsize=(width, height), dpi=100, facecolor="white", layout=layout)


def class_colors(n_classes: int) -> list[str]:
    """Return one color per class: the palette for up to ten classes, else viridis without its pale end.

    >>> class_colors(2)
    ['#3f90da', '#ffa90e']
    """
    if n_classes <= len(PALETTE):
        return list(PALETTE[:n_classes])
    from matplotlib import colormaps

    return [to_hex(c) for c in colormaps["viridis"](np.linspace(0, 0.95, n_classes))]


def class_marker(code: int) -> str:
    """Return the marker of a class; markers repeat after ten classes."""
    return MARKERS[code % len(MARKERS)]


def tint(color: Any, share: float = 0.28) -> str:
    """Mix a color with white, so that `share` of it remains.

    >>> tint("#000000", 0.5)
    '#808080'
    """
    return str(to_hex(1 - share * (1 - np.asarray(to_rgb(color)))))


def tints(n_classes: int, share: float = 0.28) -> ListedColormap:
    """Return a color map from class codes 0..K-1 to tints, for decision regions (vmin=-0.5, vmax=K-0.5)."""
    return ListedColormap([tint(c, share) for c in class_colors(n_classes)])


def ink_on(color: Any) -> str:
    """Return the text color, dark or white, that is easier to read on a color (WCAG relative luminance).

    >>> ink_on("#ffffff"), ink_on("#15497d")
    ('#222222', 'white')
    """
    rgb = np.asarray(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return INK if linear @ (0.2126, 0.7152, 0.0722) > 0.3 else "white"


def dress(axes: Any, title: str = "", x: str = "", y: str = "", grid: str = "both") -> Any:
    """Set title, labels, ticks and a light grid behind the data; `grid` is "both", "x", "y" or "none"."""
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(labelsize=TEXT, colors=MUTED, labelcolor=INK, length=3, width=0.8)
    axes.tick_params(which="minor", length=0)
    if grid == "none":
        axes.grid(False)
    else:
        axes.grid(True, axis=grid, color=GRID, linewidth=0.8)
    axes.set_title(title, fontsize=TITLE, color=INK, loc="left")
    axes.set_xlabel(x, fontsize=TEXT, color=INK)
    axes.set_ylabel(y, fontsize=TEXT, color=INK)
    return axes


def bare(axes: Any, title: str = "", size: float = TEXT, color: str = INK) -> Any:
    """Style the axes of an image: no ticks, a thin frame, a centered title."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(visible=True, color=FAINT, linewidth=0.6)
    if title:
        axes.set_title(title, fontsize=size, color=color, pad=3)
    return axes


def legend(axes: Any, **options: Any) -> Any:
    """Add a legend without a frame, on a half-transparent ground; returns None if nothing has a label."""
    handles, labels = axes.get_legend_handles_labels()
    if not labels:
        return None
    settings: dict[str, Any] = {
        "fontsize": TEXT, "labelcolor": INK, "framealpha": 0.85, "edgecolor": "none", "handlelength": 1.6,
    }  # fmt: skip
    return axes.legend(handles, labels, **{**settings, **options})


def legend_above(axes: Any, columns: int = 4) -> Any:
    """Add a legend between the title and the data, so that it covers nothing."""
    made = legend(
        axes, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderpad=0, borderaxespad=0.5,
        columnspacing=1.4, handletextpad=0.5,
    )  # fmt: skip
    if made is not None and axes.get_title(loc="left"):
        rows = -(-len(made.get_texts()) // columns)
        axes.set_title(axes.get_title(loc="left"), fontsize=TITLE, color=INK, loc="left", pad=8 + 15 * rows)
    return made


def class_legend(figure: Figure, labels: ArrayLike, most: int = 12) -> Any:
    """Add the colors and markers of the classes below the panels; returns None for more than `most` classes."""
    from matplotlib.lines import Line2D

    names = class_names(labels, len(np.asarray(labels)))
    if len(names) > most:
        return None
    handles = [
        Line2D([], [], linestyle="", marker=class_marker(c), color=color, markersize=6, markeredgecolor="white",
               label=shorten(name))
        for c, (color, name) in enumerate(zip(class_colors(len(names)), names))
    ]  # fmt: skip
    wide = sum(len(shorten(n)) + 4 for n in names) > 80 * figure.get_figwidth() / FIGURE_WIDTH
    return figure.legend(
        handles=handles, loc="outside lower left", ncols=4 if wide else len(names), frameon=False, fontsize=TEXT,
        labelcolor=INK, handletextpad=0.3, columnspacing=1.4,
    )  # fmt: skip


def headline(figure: Figure, title: str, note: str = "") -> None:
    """Write a title above all panels, with a muted second line, and move the panels down."""
    height = figure.get_figheight()
    top = 0.09  # inches from the edge of the page
    figure.text(0.012, 1 - top / height, title, ha="left", va="top", fontsize=TITLE, color=INK)
    used = top + (TITLE * 1.25 / 72 if title else 0)
    if note:
        figure.text(0.012, 1 - (used + 0.03) / height, note, ha="left", va="top", fontsize=TEXT, color=MUTED)
        used += 0.03 + TEXT * 1.25 / 72
    figure.set_layout_engine("constrained", w_pad=0.06, h_pad=0.06, rect=(0, 0, 1, 1 - (used + 0.04) / height))


def write_empty(axes: Any, what: str) -> None:
    """Write a text in place of missing data, so that an empty figure does not look broken."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, what, ha="center", va="center", fontsize=TEXT, color=MUTED, transform=axes.transAxes)


def shorten(text: Any, most: int = 24) -> str:
    """Shorten a text to `most` characters by leaving out its middle, because class names often differ at both ends.

    >>> shorten("card_payment_wrong_exchange_rate", 20)
    'card_payme…ange_rate'
    """
    words = " ".join(str(text).split())
    if len(words) <= most:
        return literal(words)
    head = most // 2
    return literal(f"{words[:head]}…{words[len(words) - (most - head - 1) :]}")


def literal(text: str) -> str:
    """Escape a text for matplotlib, which reads text between two dollar signs as a formula."""
    return text.replace("$", r"\$")


def class_names(labels: ArrayLike | Sequence[Any] | None, n: int) -> list[str]:
    """Return the names of n classes: the labels as text, or the numbers 0..n-1."""
    return [str(i) for i in range(n)] if labels is None else [str(v) for v in np.asarray(labels).tolist()]


def powers(axis: Any) -> None:
    """Write the ticks of a logarithmic axis as plain text (0.001, 1, 10⁶), which needs no font of formulas.

    Call it after the data is drawn: an axis of fewer than two decades also gets ticks at 2 and 5.
    """
    low, high = sorted(axis.get_view_interval())
    if 0 < low < high < 100 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: power(value)))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(NullLocator())


def power(value: float) -> str:
    """Format a number of a logarithmic axis.

    >>> power(0.001), power(100), power(1e6), power(0.0)
    ('0.001', '100', '10⁶', '')
    """
    if value <= 0:
        return ""
    if 1e-3 <= value < 1e4:
        return f"{value:g}"
    exponent = int(np.floor(np.log10(value) + 1e-9))
    lead = value / 10.0**exponent
    raised = f"10{str(exponent).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
    return raised if abs(lead - 1) < 1e-6 else f"{lead:.3g}·{raised}"


# ---- figures as files and as part of a page

_SETTINGS: dict[str, Any] = {"svg.fonttype": "none", "svg.hashsalt": "kway"}  # text as text; the same ids every time
_ONE_AT_A_TIME = threading.Lock()  # rc_context changes the settings of the whole process


def save(figure: Figure, path: str | Path, dpi: int = 200) -> Path:
    """Write a figure to a .png or .svg file.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure.
    path : str or Path
        The file; its ending gives the format. It appears only when it is complete.
    dpi : int, default=200
        Dots per inch of a png.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> from kway import report
    >>> report.save(report.history({"softmax": [3, 2, 1]}), "/tmp/history.svg").name
    'history.svg'
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in (".png", ".svg"):
        raise InputError(f"figures are saved as .png or .svg, got {path.name!r}; change the ending of the name")
    content = svg_document(figure) if kind == ".svg" else _png(figure, dpi)
    with replacing(path) as draft:
        draft.write_bytes(content)
    return path


def to_svg(figure: Figure, title: str = "") -> str:
    """Return a figure as one <svg> element for an HTML page.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure.
    title : str, default=""
        What screen readers say.

    Returns
    -------
    str
        The element. Text stays text, and the same figure gives the same bytes.
    """
    return page_svg(svg_document(figure), title)


def page_svg(document: bytes, title: str = "") -> str:
    """Return the <svg> element of an SVG document.

    The ids that matplotlib gives to groups (axes_1, text_3) are removed, because two figures on one page would share
    them. Ids that other elements refer to are made from their content and stay.
    """
    text = document.decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' id="[\w.]+_\d+"', "", text)
    if title:
        opening, rest = text.split(">", 1)
        text = f'{opening} role="img">\n <title>{escape(title)}</title>{rest}'
    return text


def svg_document(figure: Figure) -> bytes:
    """Return a figure as an SVG file."""
    return _figure_bytes(figure, format="svg", metadata={"Date": None, "Creator": "kway"})


def _png(figure: Figure, dpi: int = 200) -> bytes:
    return _figure_bytes(figure, format="png", dpi=dpi, metadata={"Software": "kway"})


def _figure_bytes(figure: Figure, **options: Any) -> bytes:
    out = io.BytesIO()
    with _ONE_AT_A_TIME, rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the browser has other fonts
        figure.savefig(out, **options)
    return out.getvalue()
