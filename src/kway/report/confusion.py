"""The confusion matrix: counts (K, K), where counts[t, p] rows of class t were predicted as p.

Correct predictions are blue and wrong ones orange, each cell as a share of its row (its true class). Up to 40 classes
are named, and their counts are written if they fit. Of more classes, those that are confused with each other are
placed side by side, so that confusion shows as blocks along the diagonal, and the most frequent mistakes are listed
next to the matrix. If there are more than 200 classes, only some are drawn, but the accuracy, the shares and the list
of mistakes are still those of all classes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from kway.errors import InputError
from kway.report import style

MAX_NAMED = 40  # classes up to which the names are written on the axes
MAX_DRAWN = 200  # classes up to which all classes are drawn


class _Drawing(NamedTuple):
    """The classes that are drawn, with texts about all classes."""

    counts: NDArray  # (k, k) of the drawn classes
    shares: NDArray  # (k, k) counts as shares of all rows of the true class
    names: list[str]  # of the drawn classes
    title: str
    accuracy: str  # a sentence about the rows of all classes


class Pair(NamedTuple):
    """A pair of confused classes: rows of class `true` that are predicted as `predicted`, and their share."""

    true: int
    predicted: int
    rows: int
    share: float


def confusion_matrix(counts: ArrayLike, labels: ArrayLike | None = None, title: str = "Confusion") -> Figure:
    """Draw a confusion matrix. Of more than 40 classes, those that are confused with each other are side by side.

    Parameters
    ----------
    counts : array-like or sparse matrix of shape (n_classes, n_classes)
        Counts with true classes in rows and predicted classes in columns. Of more than 200 classes, the 200 with the
        most mistakes are drawn.
    labels : array-like of shape (n_classes,), default=None
        Names of the classes; by default, their numbers.
    title : str, default="Confusion"
        Title of the figure.

    Returns
    -------
    matplotlib.figure.Figure
        The drawn figure.

    Examples
    --------
    >>> from kway import report
    >>> figure = report.confusion_matrix([[8, 2], [1, 9]], ["cat", "dog"])
    """
    from scipy.sparse import csr_array

    shape = np.shape(counts)
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] == 0:
        raise InputError(f"a confusion matrix needs one row and one column per class, got the shape {tuple(shape)}")
    n_classes = shape[0]
    names = style.class_names(labels, n_classes)
    if len(names) != n_classes:
        raise InputError(
            f"{len(names)} labels were given for a confusion matrix of {n_classes} classes; give one per class"
        )
    table = csr_array(counts)
    drawn = _most_mistaken(table)
    if n_classes > MAX_NAMED:
        drawn = drawn[confusion_order(table[drawn][:, drawn].toarray())]
    if len(drawn) < n_classes:
        left_out = n_classes - len(drawn)
        title = f"{title}: the {len(drawn)} classes with the most mistakes ({left_out:,} more are not drawn)"
    part = table[drawn][:, drawn].toarray()
    shares = part / _positive(table.sum(axis=1)[drawn])[:, None]
    drawing = _Drawing(part, shares, [names[i] for i in drawn], title, _accuracy_text(table))
    if len(drawn) <= MAX_NAMED:
        return _draw_with_names(drawing)
    return _draw_without_names(drawing, worst_pairs(table), names)


def confusion_of(true: NDArray, predicted: NDArray, labels: NDArray, title: str) -> Figure:
    """Draw the confusion matrix of rows with these class codes (n,); the counts are sparse, as K^2 may be large."""
    from scipy.sparse import csr_array

    ones = np.ones(len(true), np.int64)
    return confusion_matrix(csr_array((ones, (true, predicted)), shape=(len(labels), len(labels))), labels, title=title)


def worst_pairs(counts: ArrayLike, max_pairs: int = 10) -> list[Pair]:
    """Return the most frequent mistakes, ordered by the number of rows and then by the share of the class.

    >>> worst_pairs([[8, 2], [1, 9]])[0]
    Pair(true=0, predicted=1, rows=2, share=0.2)
    """
    from scipy.sparse import csr_array

    table = csr_array(counts)
    cells = table.tocoo()
    share = cells.data / _positive(table.sum(axis=1))[cells.row]
    order = np.lexsort((cells.col, cells.row, -share, -cells.data))
    order = order[(cells.row[order] != cells.col[order]) & (cells.data[order] > 0)][:max_pairs]
    return [Pair(int(cells.row[i]), int(cells.col[i]), int(cells.data[i]), float(share[i])) for i in order]


def row_shares(counts: NDArray) -> NDArray:
    """Divide each row by its sum; a class without rows stays at zero."""
    return counts / _positive(counts.sum(axis=1, keepdims=True))


def _positive(sums: NDArray) -> NDArray:
    """Return sums as divisors, with 1 for classes without rows."""
    return np.where(sums > 0, sums, 1)


def confusion_order(counts: NDArray) -> NDArray[np.int64]:
    """Return an order of the classes (K,) that places classes that are confused with each other side by side.

    The leaves of an average-linkage tree with the distance 1 - (share[t, p] + share[p, t]) / maximum have this order.
    """
    if len(counts) < 3:
        return np.arange(len(counts))
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    share = row_shares(counts)
    similarity = share + share.T
    np.fill_diagonal(similarity, 0)
    distance = 1 - similarity / max(similarity.max(), 1e-12)
    np.fill_diagonal(distance, 0)
    tree = linkage(squareform(distance, checks=False), "average", optimal_ordering=True)
    return np.asarray(leaves_list(tree), np.int64)


def _most_mistaken(counts: Any) -> NDArray[np.int64]:
    """Return the codes, in ascending order, of the MAX_DRAWN classes with the most mistakes in sparse counts (K, K)."""
    if counts.shape[0] <= MAX_DRAWN:
        return np.arange(counts.shape[0])
    mistakes = counts.sum(axis=0) + counts.sum(axis=1) - 2 * counts.diagonal()
    return np.sort(np.argsort(-mistakes, kind="stable")[:MAX_DRAWN])


def _draw_with_names(drawing: _Drawing) -> Figure:
    """Draw up to MAX_NAMED classes with names on the axes, and with counts if they fit."""
    table, names, share = drawing.counts, drawing.names, drawing.shares
    k = len(table)
    font_size = style.TEXT if k <= 12 else style.TINY if k <= 20 else 6.5
    short = [style.shorten(n, 18) for n in names]
    longest = max(map(len, short))
    name_width = longest * font_size * 0.62 / 72  # inches
    margin = 0.7 + name_width
    side = min(max(0.42 * k, 1.9), style.FIGURE_WIDTH - margin - 0.15)
    upright = name_width + 0.1 > side / k  # names side by side would touch
    figure = style.figure(max(side + margin + 0.15, 3.0), side + 1.15 + (name_width if upright else 0.1))
    axes = style.dress(figure.subplots(), "", "predicted class", "true class", grid="none")
    _draw_correct(axes, share)
    wrong = axes.imshow(np.ma.array(share, mask=np.eye(k, dtype=bool)), cmap=style.ORANGES, norm=_error_scale(share))
    axes.set_xticks(range(k), short, fontsize=font_size, rotation=90 if upright else 0)
    axes.set_yticks(range(k), short, fontsize=font_size)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xticks(np.arange(k + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(k + 1) - 0.5, minor=True)
    axes.grid(True, which="minor", color=style.GRID, linewidth=0.6)
    if len(str(int(table.max()))) * font_size * 0.62 / 72 < side / k:  # else counts would touch
        _write_counts(axes, table, share, wrong, font_size)
    style.headline(figure, drawing.title, drawing.accuracy)
    return figure


def _accuracy_text(table: Any) -> str:
    """Return a sentence about the accuracy on all rows of sparse counts (K, K)."""
    n = table.sum()
    return f"{table.diagonal().sum() / (n or 1):.1%} of {int(n):,} rows are correct"


_CORRECT = Normalize(0, 1.3)  # the darkest blue is not used, so that counts stay readable on it


def _draw_correct(axes: Any, share: NDArray) -> None:
    diagonal = np.eye(len(share), dtype=bool)
    axes.imshow(np.ma.array(share, mask=~diagonal), cmap=style.BLUES, norm=_CORRECT, interpolation="nearest")


def _error_scale(share: NDArray) -> Normalize:
    """Return the color scale of the mistakes, which ends at the worst pair, or at 15% if none is that bad."""
    wrong = share[~np.eye(len(share), dtype=bool)]
    return PowerNorm(0.7, 0, max(float(wrong.max(initial=0.0)), 0.15))


def _write_counts(axes: Any, table: NDArray, share: NDArray, wrong: Any, size: float) -> None:
    for t, p in zip(*np.nonzero(table)):
        back = style.BLUES(_CORRECT(share[t, p])) if t == p else wrong.cmap(wrong.norm(share[t, p]))
        count = f"{int(table[t, p])}"
        ink = style.ink_on(back)
        # in_layout=False: the text lies inside its cell, so the layout can ignore it
        axes.text(p, t, count, ha="center", va="center", fontsize=size, color=ink, in_layout=False)


def _draw_without_names(drawing: _Drawing, mistakes: list[Pair], names: list[str]) -> Figure:
    """Draw more than MAX_NAMED classes next to a list of the most frequent mistakes.

    `names` are the names of all classes.
    """
    n_drawn = len(drawing.names)
    figure = style.figure(height=4.75)
    axes, list_axes = figure.subplots(1, 2, width_ratios=[1.75, 1])
    _draw_correct(axes, drawing.shares)
    wrong = _draw_wrong(axes, drawing.shares)
    style.bare(axes)
    axes.set_xlabel("predicted class", fontsize=style.TEXT, color=style.INK)
    axes.set_ylabel("true class, in the same order", fontsize=style.TEXT, color=style.INK)
    bar = figure.colorbar(wrong, ax=axes, location="bottom", shrink=0.7, aspect=30, pad=0.02)
    bar.set_label("wrong, as a share of the true class", fontsize=style.TEXT, color=style.INK)
    bar.ax.tick_params(labelsize=style.TINY, length=2)
    bar.outline.set_visible(False)
    axes.set(xlim=(-0.5, n_drawn - 0.5), ylim=(n_drawn - 0.5, -0.5))
    _list_pairs(list_axes, mistakes, names)
    note = f"{n_drawn} classes, those confused with each other side by side; {drawing.accuracy}"
    style.headline(figure, drawing.title, note)
    return figure


def _draw_wrong(axes: Any, share: NDArray) -> Any:
    """Draw the mistakes as squares of at least 4 px, because a cell of 150 classes has only 2 px."""
    true, predicted = np.nonzero(share * (1 - np.eye(len(share))))
    order = np.argsort(share[true, predicted], kind="stable")  # the worst on top
    true, predicted = true[order], predicted[order]
    side = max(3.6 * 72 / len(share), 2.9)  # points
    return axes.scatter(
        predicted, true, s=side**2, c=share[true, predicted], marker="s", linewidths=0, cmap=style.ORANGES,
        norm=_error_scale(share), rasterized=len(true) > 3000, zorder=3,
    )  # fmt: skip


def _list_pairs(axes: Any, pairs: list[Pair], names: list[str]) -> None:
    axes.set_title("Most frequent mistakes", fontsize=style.TEXT, color=style.INK, loc="left")
    axes.set_axis_off()
    if not pairs:
        axes.text(0, 0.95, "none", va="top", fontsize=style.TEXT, transform=axes.transAxes)
    for i, pair in enumerate(pairs):
        y = 0.985 - i / max(len(pairs), 10)
        words = f"{style.shorten(names[pair.true], 24)}\n→ {style.shorten(names[pair.predicted], 22)}"
        numbers = f"{pair.rows}\n{pair.share:.0%}"
        for x, text, align, color in ((0, words, "left", style.INK), (1, numbers, "right", style.CONTRAST_INK)):
            axes.text(x, y, text, va="top", ha=align, fontsize=style.TINY, color=color, transform=axes.transAxes)
