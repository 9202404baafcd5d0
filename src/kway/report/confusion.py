"""The confusion matrix: counts (K, K), where counts[t, p] rows of class t were predicted as p.

Correct predictions are blue and wrong ones orange, each cell as a share of its row (its true class). Up to 40 classes
are named, and their counts are written if there is room. Of more classes, those that are confused with each other are
put side by side, so that confusion shows as blocks along the diagonal, and the most frequent mistakes are listed next
to the matrix.
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


class Pair(NamedTuple):
    """A pair of confused classes: rows of class `true` that are predicted as `predicted`, and their share."""

    true: int
    predicted: int
    rows: int
    share: float


def confusion_matrix(
    counts: ArrayLike, labels: ArrayLike | None = None, clustered: bool | None = None, title: str = "Confusion"
) -> Figure:
    """Draw a confusion matrix.

    Parameters
    ----------
    counts : array-like or sparse matrix of shape (n_classes, n_classes)
        Counts with true classes in rows and predicted classes in columns. Of more than 200 classes, the 200 with the
        most mistakes are drawn.
    labels : array-like of shape (n_classes,), default=None
        Names of the classes; by default, their numbers.
    clustered : bool, default=None
        Whether to put classes that are confused with each other side by side; by default, if there are more than 40.
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
    if clustered is None:
        clustered = np.shape(counts)[0] > MAX_NAMED
    table, names, left_out = _count_table(counts, labels)
    order = confusion_order(table) if clustered else np.arange(len(table))
    table, names = table[np.ix_(order, order)], [names[i] for i in order]
    if left_out:
        title = f"{title}: the {len(table)} classes with the most mistakes ({left_out:,} more are not drawn)"
    if len(table) <= MAX_NAMED:
        return _small(table, names, title)
    return _large(table, names, title, clustered)


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
    table = np.asarray(counts)
    share = row_shares(table)
    wrong = table * (1 - np.eye(len(table), dtype=table.dtype))
    true, predicted = np.nonzero(wrong)
    order = np.lexsort((-share[true, predicted], -wrong[true, predicted]))[:max_pairs]
    return [
        Pair(int(t), int(p), int(table[t, p]), float(share[t, p])) for t, p in zip(true[order], predicted[order])
    ]  # fmt: skip


def row_shares(counts: NDArray) -> NDArray:
    """Divide each row by its sum; a class without rows stays at zero."""
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)


def confusion_order(counts: NDArray) -> NDArray[np.int64]:
    """Return an order of the classes (K,) that puts classes that are confused with each other side by side.

    It is the order of leaves of an average-linkage tree with the distance 1 - (share[t, p] + share[p, t]) / maximum.
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


def _count_table(counts: Any, labels: ArrayLike | None) -> tuple[NDArray, list[str], int]:
    """Return dense counts of the classes that are drawn, their names, and the number of classes left out."""
    from scipy.sparse import csr_array, issparse

    n_classes = counts.shape[0] if issparse(counts) else len(np.asarray(counts))
    shape = tuple(np.shape(counts))
    if len(shape) != 2 or shape[0] != shape[1] or n_classes == 0:
        raise InputError(f"a confusion matrix needs one row and one column per class, got the shape {shape}")
    names = style.class_names(labels, n_classes)
    if len(names) != n_classes:
        raise InputError(
            f"{len(names)} labels were given for a confusion matrix of {n_classes} classes; give one per class"
        )
    if n_classes <= MAX_DRAWN:
        return (counts.toarray() if issparse(counts) else np.asarray(counts)), names, 0
    sparse_counts = csr_array(counts)
    mistakes = sparse_counts.sum(axis=0) + sparse_counts.sum(axis=1) - 2 * sparse_counts.diagonal()
    drawn = np.sort(np.argsort(-mistakes, kind="stable")[:MAX_DRAWN])
    return sparse_counts[drawn][:, drawn].toarray(), [names[i] for i in drawn], n_classes - MAX_DRAWN


def _small(table: NDArray, names: list[str], title: str) -> Figure:
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
    share = row_shares(table)
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
    style.headline(figure, title, _summary(table))
    return figure


def _summary(table: NDArray) -> str:
    accuracy = np.trace(table) / max(table.sum(), 1)
    return f"{accuracy:.1%} of {int(table.sum()):,} rows are correct"


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
        axes.text(
            p, t, count, ha="center", va="center", fontsize=size, color=ink, in_layout=False
        )  # it is inside its cell


def _large(table: NDArray, names: list[str], title: str, clustered: bool) -> Figure:
    figure = style.figure(height=4.75)
    axes, list_axes = figure.subplots(1, 2, width_ratios=[1.75, 1])
    share = row_shares(table)
    _draw_correct(axes, share)
    wrong = _draw_wrong(axes, share)
    style.bare(axes)
    axes.set_xlabel("predicted class", fontsize=style.TEXT, color=style.INK)
    axes.set_ylabel("true class, in the same order", fontsize=style.TEXT, color=style.INK)
    bar = figure.colorbar(wrong, ax=axes, location="bottom", shrink=0.7, aspect=30, pad=0.02)
    bar.set_label("wrong, as a share of the true class", fontsize=style.TEXT, color=style.INK)
    bar.ax.tick_params(labelsize=style.TINY, length=2)
    bar.outline.set_visible(False)
    axes.set(xlim=(-0.5, len(table) - 0.5), ylim=(len(table) - 0.5, -0.5))
    _list_pairs(list_axes, worst_pairs(table), names)
    order = ", those confused with each other side by side" if clustered else ""
    style.headline(figure, title, f"{len(table)} classes{order}; {_summary(table)}")
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
        for x, text, side, color in ((0, words, "left", style.INK), (1, numbers, "right", style.CONTRAST_INK)):
            axes.text(x, y, text, va="top", ha=side, fontsize=style.TINY, color=color, transform=axes.transAxes)
