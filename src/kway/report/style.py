"""The look of every figure: one palette, one set of font sizes, a light grid, nothing that is not data.

    figure = style.figure(height=4.0)          a matplotlib Figure, 640 px wide, constrained layout, no pyplot
    axes = figure.subplots()
    style.dress(axes, title="...", x="k", y="accuracy")
    style.legend(axes)

Everything is set on the artists themselves and never in matplotlib's global settings, so that figures drawn in several
threads, or inside somebody's notebook, neither change nor inherit anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, ListedColormap, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator
from numpy.typing import ArrayLike

FIGURE_WIDTH = 6.4  # inches: 640 px at 100 dots an inch, where the sizes below are 12 to 15 px
TITLE, LABEL, SMALL, TINY = 11.0, 9.5, 8.5, 7.5  # points
INK, MUTED, FAINT, GRID = "#222222", "#6b6b6b", "#b8b8b8", "#e6e6e6"
ACCENT, CONTRAST = "#3f90da", "#e76300"  # right and wrong, ours and theirs, chosen and not
ACCENT_INK, CONTRAST_INK = "#1f69ad", "#b04a00"  # the same two for words: 4.5 : 1 on white and more

# ten colours that people with any colour vision tell apart (M. A. Petroff, arXiv:2107.02270)
PALETTE = (
    "#3f90da", "#ffa90e", "#bd1f01", "#832db6", "#94a4a2",
    "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd",
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")  # a second way to tell classes apart

BLUES = LinearSegmentedColormap.from_list("kway-blues", ["#ffffff", "#c6dcf2", "#3f90da", "#15497d"])
ORANGES = LinearSegmentedColormap.from_list("kway-oranges", ["#ffffff", "#ffd9a8", "#e76300", "#7a1f00"])
DIVERGING = LinearSegmentedColormap.from_list(
    "kway-diverging", ["#15497d", "#3f90da", "#ffffff", "#e76300", "#7a1f00"]
)  # blue below zero, white at it, orange above


def figure(width: float = FIGURE_WIDTH, height: float = 4.0) -> Figure:
    """An empty figure; its layout keeps labels inside and apart."""
    inside = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06)
    return Figure(figsize=(width, height), dpi=100, facecolor="white", layout=inside)


def class_colours(n_classes: int) -> list[str]:
    """A colour a class: the palette up to ten classes, beyond them a continuous map (viridis, its pale end left out).

    >>> class_colours(2)
    ['#3f90da', '#ffa90e']
    """
    if n_classes <= len(PALETTE):
        return list(PALETTE[:n_classes])
    from matplotlib import colormaps

    return [to_hex(c) for c in colormaps["viridis"](np.linspace(0, 0.95, n_classes))]


def class_marker(code: int) -> str:
    """The marker of a class; beyond ten classes they come round again."""
    return MARKERS[code % len(MARKERS)]


def tint(colour: Any, share: float = 0.28) -> str:
    """The colour mixed with white: `share` of it remains. Regions are tints of the points that lie in them.

    >>> tint("#000000", 0.5)
    '#808080'
    """
    return str(to_hex(1 - share * (1 - np.asarray(to_rgb(colour)))))


def tints(n_classes: int, share: float = 0.28) -> ListedColormap:
    """The map of class codes 0..K-1 to tints, for images of decision regions (vmin=-0.5, vmax=K-0.5)."""
    return ListedColormap([tint(c, share) for c in class_colours(n_classes)])


def ink_on(colour: Any) -> str:
    """Dark or white, whichever is read more easily on this colour (WCAG relative luminance).

    >>> ink_on("#ffffff"), ink_on("#15497d")
    ('#222222', 'white')
    """
    rgb = np.asarray(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return INK if linear @ (0.2126, 0.7152, 0.0722) > 0.3 else "white"


def dress(axes: Any, title: str = "", x: str = "", y: str = "", grid: str = "both") -> Any:
    """Titles, labels, ticks and a light grid behind the data; `grid` is "both", "x", "y" or "none"."""
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[:].set_in_layout(False)  # they lie on the axes' own box; a layout took a seventh longer with them
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(labelsize=SMALL, colors=MUTED, labelcolor=INK, length=3, width=0.8)
    axes.tick_params(which="minor", length=0)
    if grid == "none":
        axes.grid(False)
    else:
        axes.grid(True, axis=grid, color=GRID, linewidth=0.8)
    axes.set_title(title, fontsize=TITLE, color=INK, loc="left", y=1.0)  # said, else it is looked for at every drawing
    axes.set_xlabel(x, fontsize=LABEL, color=INK)
    axes.set_ylabel(y, fontsize=LABEL, color=INK)
    return axes


def bare(axes: Any, title: str = "", size: float = SMALL, colour: str = INK) -> Any:
    """Axes of an image: no ticks, a hairline frame, the title above it in the middle."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(visible=True, color=FAINT, linewidth=0.6)
    if title:
        axes.set_title(title, fontsize=size, color=colour, pad=3)
    return axes


def legend(axes: Any, **options: Any) -> Any:
    """The legend without a frame, on a veil that keeps it readable over data; None where nothing has a label."""
    handles, labels = axes.get_legend_handles_labels()
    if not labels:
        return None
    settings: dict[str, Any] = {
        "fontsize": SMALL, "labelcolor": INK, "framealpha": 0.85, "edgecolor": "none", "handlelength": 1.6,
    }  # fmt: skip
    return axes.legend(handles, labels, **{**settings, **options})


def legend_above(axes: Any, columns: int = 4) -> Any:
    """The legend in a row between the title and the data, where it can cover nothing."""
    made = legend(
        axes, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderpad=0, borderaxespad=0.5,
        columnspacing=1.4, handletextpad=0.5,
    )  # fmt: skip
    if made is not None and axes.get_title(loc="left"):
        rows = -(-len(made.get_texts()) // columns)
        axes.set_title(axes.get_title(loc="left"), fontsize=TITLE, color=INK, loc="left", y=1.0, pad=8 + 15 * rows)
    return made


def class_legend(figure: Figure, labels: ArrayLike, most: int = 12) -> Any:
    """Colours and markers of the classes below the panels; None beyond `most` classes, where it would not be read."""
    from matplotlib.lines import Line2D

    names = names_of(labels, len(np.asarray(labels)))
    if len(names) > most:
        return None
    handles = [
        Line2D([], [], linestyle="", marker=class_marker(c), color=colour, markersize=6, markeredgecolor="white",
               label=shorten(name))
        for c, (colour, name) in enumerate(zip(class_colours(len(names)), names))
    ]  # fmt: skip
    wide = sum(len(shorten(n)) + 4 for n in names) > 80 * figure.get_figwidth() / FIGURE_WIDTH
    return figure.legend(
        handles=handles, loc="outside lower left", ncols=4 if wide else len(names), frameon=False, fontsize=SMALL,
        labelcolor=INK, handletextpad=0.3, columnspacing=1.4,
    )  # fmt: skip


def headline(figure: Figure, title: str, note: str = "") -> None:
    """A title over several panels, with a muted second line; the panels make room for them."""
    height = figure.get_figheight()
    top = 0.09  # inches from the edge of the page
    figure.text(0.012, 1 - top / height, title, ha="left", va="top", fontsize=TITLE, color=INK)
    used = top + TITLE * 1.25 / 72
    if note:
        figure.text(0.012, 1 - (used + 0.03) / height, note, ha="left", va="top", fontsize=SMALL, color=MUTED)
        used += 0.03 + SMALL * 1.25 / 72
    figure.set_layout_engine("constrained", w_pad=0.06, h_pad=0.06, rect=(0, 0, 1, 1 - (used + 0.04) / height))


def say_empty(axes: Any, what: str) -> None:
    """Words in place of data that is not there, so that an empty figure is not taken for a broken one."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, what, ha="center", va="center", fontsize=LABEL, color=MUTED, transform=axes.transAxes)


def shorten(text: Any, most: int = 24) -> str:
    """At most `most` characters, the middle left out: names of classes often differ at both ends.

    >>> shorten("card_payment_wrong_exchange_rate", 20)
    'card_payme…ange_rate'
    """
    words = " ".join(str(text).split())
    if len(words) <= most:
        return literal(words)
    head = most // 2
    return literal(f"{words[:head]}…{words[len(words) - (most - head - 1) :]}")


def literal(text: str) -> str:
    """Somebody's text as it is: matplotlib reads what stands between two dollar signs as mathematics."""
    return text.replace("$", r"\$")


def names_of(labels: ArrayLike | Sequence[Any] | None, n: int) -> list[str]:
    """Class names for n classes: the labels as text, or their numbers."""
    return [str(i) for i in range(n)] if labels is None else [str(v) for v in np.asarray(labels).tolist()]


def powers(axis: Any) -> None:
    """Ticks of a logarithmic axis as plain text (0.001, 1, 10⁶), which SVG readers without our fonts can show.

    An axis of fewer than two decades, once its data is drawn, also has ticks at 2 and 5.
    """
    low, high = sorted(axis.get_view_interval())
    if 0 < low < high < 100 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: power(value)))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(NullLocator())  # they have no labels, and each costs a layout


def power(value: float) -> str:
    """A number of a logarithmic axis.

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
