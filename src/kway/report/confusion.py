"""The confusion matrix: counts (K, K), counts[t, p] rows of class t that were called p.

Blue is right and orange is wrong, each cell as a share of its row (its true class). Up to 20 classes every count is
written; up to 40 every class is named; beyond that names would be specks, so the classes are put in an order in which
those that are taken for each other are neighbours (confusion then shows as blocks along the diagonal), and the
worst pairs are listed beside the matrix, numbered as in it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from kway.errors import InputError
from kway.report import style

MOST_WRITTEN, MOST_NAMED, MOST_DRAWN = (
    20,
    40,
    200,
)  # classes: counts written, names written, all of them drawn
_PAIRS_LISTED = 10
_PALER = 1.3  # the share at which blue would be darkest: counts stay readable on it


class Pair(NamedTuple):
    """Rows of class `true` called `predicted`: how many, and as a share of the class."""

    true: int
    predicted: int
    rows: int
    share: float


def confusion_matrix(
    counts: ArrayLike, labels: ArrayLike | None = None, clustered: bool | None = None, title: str = "Confusion"
) -> Figure:
    """The confusion matrix of K classes, for reading at 2 and at 150; counts (K, K) or sparse, true classes in rows.

    `clustered` None clusters above 40 classes. Above 200 classes only the 200 with most mistakes are drawn.
    """
    if clustered is None:
        clustered = np.shape(counts)[0] > MOST_NAMED
    table, names, left_out = _count_table(counts, labels)
    order = confusion_order(table) if clustered else np.arange(len(table))
    table, names = table[np.ix_(order, order)], [names[i] for i in order]
    if left_out:
        title = f"{title}: the {len(table)} classes with most mistakes ({left_out:,} more are not drawn)"
    if len(table) <= MOST_NAMED:
        return _small(table, names, title)
    return _large(table, names, title, clustered)


def confusion_of(true: NDArray, called: NDArray, labels: list[str], title: str) -> Figure:
    """The confusion matrix of rows by the codes (n,) of their class and of what they were called; K^2 may be many."""
    from scipy.sparse import csr_array

    ones = np.ones(len(true), np.int64)
    return confusion_matrix(csr_array((ones, (true, called)), shape=(len(labels), len(labels))), labels, title=title)


def worst_pairs(counts: ArrayLike, most: int = _PAIRS_LISTED) -> list[Pair]:
    """The pairs of classes most often taken for each other, by rows and then by share of the class.

    >>> worst_pairs([[8, 2], [1, 9]])[0]
    Pair(true=0, predicted=1, rows=2, share=0.2)
    """
    table = np.asarray(counts)
    share = row_shares(table)
    wrong = table * (1 - np.eye(len(table), dtype=table.dtype))
    true, predicted = np.nonzero(wrong)
    order = np.lexsort((-share[true, predicted], -wrong[true, predicted]))[:most]
    return [
        Pair(int(t), int(p), int(table[t, p]), float(share[t, p])) for t, p in zip(true[order], predicted[order])
    ]  # fmt: skip


def row_shares(counts: NDArray) -> NDArray:
    """Each row divided by its sum; a class without rows stays at zero."""
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)


def confusion_order(counts: NDArray) -> NDArray[np.int64]:
    """An order of the classes (K,) that puts those confused with each other side by side.

    Leaves of an average-linkage tree over the distance 1 - (share of t called p + share of p called t) / most.
    """
    if len(counts) < 3:
        return np.arange(len(counts))
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    share = row_shares(counts)
    alike = share + share.T
    np.fill_diagonal(alike, 0)
    distance = 1 - alike / max(alike.max(), 1e-12)
    np.fill_diagonal(distance, 0)
    tree = linkage(squareform(distance, checks=False), "average", optimal_ordering=True)
    return np.asarray(leaves_list(tree), np.int64)


def _count_table(counts: Any, labels: ArrayLike | None) -> tuple[NDArray, list[str], int]:
    """Dense counts of the classes that are drawn, their names, and how many classes are not."""
    from scipy.sparse import csr_array, issparse

    k = counts.shape[0] if issparse(counts) else len(np.asarray(counts))
    shape = tuple(np.shape(counts))
    if len(shape) != 2 or shape[0] != shape[1] or k == 0:
        raise InputError(f"a confusion matrix has one row and one column a class, got the shape {shape}")
    names = style.names_of(labels, k)
    if len(names) != k:
        raise InputError(f"{len(names)} labels were given for a confusion matrix of {k} classes; give one a class")
    if k <= MOST_DRAWN:
        return (counts.toarray() if issparse(counts) else np.asarray(counts)), names, 0
    wrong = csr_array(counts)
    mistakes = wrong.sum(axis=0) + wrong.sum(axis=1) - 2 * wrong.diagonal()
    kept = np.sort(np.argsort(-mistakes, kind="stable")[:MOST_DRAWN])
    return wrong[kept][:, kept].toarray(), [names[i] for i in kept], k - MOST_DRAWN


def _small(table: NDArray, names: list[str], title: str) -> Figure:
    k = len(table)
    size = style.SMALL if k <= 12 else style.TINY if k <= MOST_WRITTEN else 6.5
    short = [style.shorten(n, 18) for n in names]
    longest = max(map(len, short))
    name = longest * size * 0.62 / 72  # inches
    beside = 0.7 + name
    side = min(max(0.42 * k, 1.9), style.FIGURE_WIDTH - beside - 0.15)
    upright = name + 0.1 > side / k  # names side by side would touch
    figure = style.figure(max(side + beside + 0.15, 3.0), side + 1.15 + (beside - 0.7 if upright else 0.1))
    axes = style.dress(figure.subplots(), "", "predicted class", "true class", grid="none")
    share = row_shares(table)
    _right_cells(axes, share)
    wrong = axes.imshow(np.ma.array(share, mask=np.eye(k, dtype=bool)), cmap=style.ORANGES, norm=_error_scale(share))
    axes.set_xticks(range(k), short, fontsize=size, rotation=90 if upright else 0)
    axes.set_yticks(range(k), short, fontsize=size)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xticks(np.arange(k + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(k + 1) - 0.5, minor=True)
    axes.grid(True, which="minor", color=style.GRID, linewidth=0.6)
    if k <= MOST_WRITTEN:
        _write_counts(axes, table, share, wrong, size)
    style.headline(figure, title, _summary(table))
    return figure


def _summary(table: NDArray) -> str:
    right = np.trace(table) / max(table.sum(), 1)
    return f"{right:.1%} of {int(table.sum()):,} rows are right"


def _right_cells(axes: Any, share: NDArray) -> None:
    diagonal = np.eye(len(share), dtype=bool)
    axes.imshow(
        np.ma.array(share, mask=~diagonal), cmap=style.BLUES, norm=Normalize(0, _PALER), interpolation="nearest"
    )


def _error_scale(share: NDArray) -> Normalize:
    """Colours of the mistakes: from none to the worst pair, or to 15 % where no pair is that bad."""
    wrong = share[~np.eye(len(share), dtype=bool)]
    return PowerNorm(0.7, 0, max(float(wrong.max(initial=0.0)), 0.15))


def _write_counts(axes: Any, table: NDArray, share: NDArray, wrong: Any, size: float) -> None:
    for t, p in zip(*np.nonzero(table)):
        back = style.BLUES(share[t, p] / _PALER) if t == p else wrong.cmap(wrong.norm(share[t, p]))
        count = f"{int(table[t, p])}"
        ink = style.ink_on(back)
        axes.text(p, t, count, ha="center", va="center", fontsize=size, color=ink, in_layout=False)  # inside its cell


def _large(table: NDArray, names: list[str], title: str, clustered: bool) -> Figure:
    figure = style.figure(height=4.75)
    axes, beside = figure.subplots(1, 2, width_ratios=[1.75, 1])
    share = row_shares(table)
    _right_cells(axes, share)
    wrong = _specks(axes, share)
    style.bare(axes)
    axes.set_xlabel("predicted class", fontsize=style.LABEL, color=style.INK)
    axes.set_ylabel("true class, in the same order", fontsize=style.LABEL, color=style.INK)
    bar = figure.colorbar(wrong, ax=axes, location="bottom", shrink=0.7, aspect=30, pad=0.02)
    bar.set_label("wrong, as a share of the true class", fontsize=style.SMALL, color=style.INK)
    bar.ax.tick_params(labelsize=style.TINY, length=2)
    bar.outline.set_visible(False)
    pairs = worst_pairs(table)
    _number_pairs(axes, pairs, len(table))
    _list_pairs(beside, pairs, names)
    order = ", those confused with each other side by side" if clustered else ""
    style.headline(figure, title, f"{len(table)} classes{order}; {_summary(table)}")
    return figure


def _specks(axes: Any, share: NDArray) -> Any:
    """The mistakes as squares of at least 4 px: a cell of 150 classes is 2 px and would not be seen."""
    true, predicted = np.nonzero(share * (1 - np.eye(len(share))))
    order = np.argsort(share[true, predicted], kind="stable")  # the worst on top
    true, predicted = true[order], predicted[order]
    side = max(3.6 * 72 / len(share), 2.9)  # points
    return axes.scatter(
        predicted, true, s=side**2, c=share[true, predicted], marker="s", linewidths=0, cmap=style.ORANGES,
        norm=_error_scale(share), rasterized=len(true) > 3000, zorder=3,
    )  # fmt: skip


def _number_pairs(axes: Any, pairs: list[Pair], k: int) -> None:
    """Numbers at the right edge, each led to its cell, pushed apart where rows are close."""
    order = sorted(range(len(pairs)), key=lambda i: (pairs[i].true, -pairs[i].predicted))
    for i, y in zip(order, apart([pairs[i].true for i in order], k * 0.045, k - 1)):
        cell = pairs[i].predicted, pairs[i].true
        axes.plot(
            [cell[0], k, k * 1.035], [cell[1], cell[1], y], color=style.FAINT, linewidth=0.7, clip_on=False, zorder=2
        )
        axes.text(k * 1.045, y, str(i + 1), va="center", fontsize=style.TINY, color=style.INK)
    axes.set(xlim=(-0.5, k - 0.5), ylim=(k - 0.5, -0.5))


def apart(places: list[int], gap: float, last: float) -> list[float]:
    """The places, ascending, moved so that neighbours are at least `gap` apart and none is beyond `last`.

    >>> apart([5, 5, 9], 2.0, 9.0)
    [5.0, 7.0, 9.0]
    """
    down = [float(p) for p in places]
    for i in range(1, len(down)):
        down[i] = max(down[i], down[i - 1] + gap)
    limit = last
    for i in reversed(range(len(down))):
        down[i] = min(down[i], limit)
        limit = down[i] - gap
    return down


def _list_pairs(axes: Any, pairs: list[Pair], names: list[str]) -> None:
    axes.set_title("Most frequent mistakes", fontsize=style.LABEL, color=style.INK, loc="left")
    axes.set_axis_off()
    if not pairs:
        axes.text(0, 0.95, "none", va="top", fontsize=style.SMALL, transform=axes.transAxes)
    for i, pair in enumerate(pairs):
        y = 0.985 - i / _PAIRS_LISTED
        words = f"{style.shorten(names[pair.true], 24)}\n→ {style.shorten(names[pair.predicted], 22)}"
        spots = [(0, f"{i + 1}", "left", style.MUTED), (0.1, words, "left", style.INK)]
        spots.append((1, f"{pair.rows}\n{pair.share:.0%}", "right", style.CONTRAST_INK))
        for x, text, side, colour in spots:
            axes.text(x, y, text, va="top", ha=side, fontsize=style.TINY, color=colour, transform=axes.transAxes)
