"""Learn trees with scikit-learn, and copy their nodes into arrays.

boosted   HistGradientBoostingClassifier: one tree per score and iteration, whose leaf values are added to the log-odds
extra     ExtraTreesClassifier: random thresholds; a leaf has the class frequencies of its training rows

Both keep a tree in preorder (a node, its left subtree, its right subtree), as kernels/trees.py requires.

A set of categories is 8 words of 32 bits. HistGradientBoostingClassifier moves categorical columns to the front and
numbers the categories of a column from 0 in ascending order. The copies have the columns and categories of the caller.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.kernels.trees import WORDS
from kway.memory import CACHE_BYTES, rows_per_block
from kway.parameters import checked_rng
from kway.private_names import boosted_trees, forest_trees
from kway.threads import cores, spans, workers
from kway.trees.nodes import Trees, as_float32, no_categories, trees_of

_NODE_BYTES = 64  # bytes of a node in scikit-learn without its class frequencies
_HELD_OUT = 0.1  # share of the rows on which early stopping measures the loss, as in scikit-learn


def learn_boosted(
    X: NDArray,
    codes: NDArray[np.int64],
    weight: NDArray | None,
    categories: NDArray[np.bool_],
    settings: dict[str, Any],
) -> Trees:
    """Learn boosted trees from rows (n, d) and class codes (n,).

    `weight` (n,) weighs the rows, `categories` (d,) marks categorical columns, and `settings` are parameters of
    HistGradientBoostingClassifier.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier  # takes half a second

    X = X.astype(np.float64, copy=False)
    model = HistGradientBoostingClassifier(
        **settings,
        categorical_features=categories if categories.any() else None,
        validation_fraction=_HELD_OUT if _can_hold_out(codes) else None,
    )
    X = _without_empty_columns(X, weight, model.min_samples_leaf)
    with few_openmp_threads(X.nbytes):
        model.fit(X, codes, weight)
    baseline, grown = boosted_trees(model)
    columns = np.concatenate([np.flatnonzero(categories), np.flatnonzero(~categories)])  # in scikit-learn's order
    arrays = _joined([_boosted_nodes(nodes, columns, i % len(baseline)) for i, (nodes, _) in enumerate(grown)])
    if categories.any():
        left_sets = [sets[nodes["bitset_idx"][nodes["is_categorical"] == 1]] for nodes, sets in grown]
        arrays |= _category_sets(X, categories, np.concatenate(left_sets), arrays)
    else:
        arrays |= no_categories(X.shape[1])
    return trees_of({**arrays, "baseline": baseline}, 1)


def _without_empty_columns(X: NDArray, weight: NDArray | None, rows_of_leaf: int) -> NDArray:
    """Return the rows (n, d), with 0 in all rows of a column that has too few values for a split.

    scikit-learn fails if all values of a column are missing, also if only those outside the held-out rows are.
    """
    known = ~np.isnan(X)
    weighted = known if weight is None else known[weight > 0]
    empty = (known.sum(axis=0) < rows_of_leaf) | ~weighted.any(axis=0)
    return np.where(empty, 0.0, X) if empty.any() else X


def _can_hold_out(codes: NDArray[np.int64]) -> bool:
    """Return whether a stratified split for early stopping is possible, which needs a row per class on both sides."""
    counts = np.bincount(codes)
    n_held_out = int(np.ceil(_HELD_OUT * len(codes)))
    return bool(counts.min() >= 2 and min(n_held_out, len(codes) - n_held_out) >= len(counts))


@contextmanager
def few_openmp_threads(n_bytes: float) -> Iterator[None]:
    """Limit the threads of OpenMP, to one if there are few rows or if the machine is busy.

    OpenMP threads spin while they wait for each other; on a busy machine a fit took 25 s instead of 1 s. Windows does
    not report its load, so there the machine never counts as busy.
    """
    from threadpoolctl import threadpool_limits

    is_busy = hasattr(os, "getloadavg") and os.getloadavg()[0] > cores()
    with threadpool_limits(1 if n_bytes <= CACHE_BYTES or is_busy else workers(), user_api="openmp"):
        yield


def _boosted_nodes(nodes: Any, columns: NDArray[np.int64], score: int) -> dict[str, NDArray]:
    """Return the nodes and leaves of one tree, whose values are added to this score.

    `columns` are the indices of the caller's columns in the order of scikit-learn.
    """
    leaf = nodes["is_leaf"].astype(bool)
    return {
        **_nodes(leaf, columns[nodes["feature_idx"]], nodes["num_threshold"], nodes["missing_go_to_left"]),
        "share_left": _shares_left(leaf, nodes["left"], nodes["right"], nodes["count"].astype(np.float64)),
        "entries": np.ones(leaf.sum(), np.int64),
        "scores": np.full(leaf.sum(), score, np.int32),
        "values": nodes["value"][leaf],
    }


def _category_sets(
    X: NDArray, categories: NDArray[np.bool_], left_sets: NDArray[np.uint32], nodes: dict[str, NDArray]
) -> dict[str, NDArray]:
    """Return the known categories (c, 8) of the categorical columns and the sets (b, 8) of the splits.

    The sets `left_sets` (b, 8) of scikit-learn number the categories of a column from 0. The result has the categories
    of the caller, and its sets are in the order of the splits. `nodes["threshold"]` is changed in place: for a split by
    category it becomes the row of its set.
    """
    splits = np.flatnonzero((nodes["column"] >= 0) & categories[nodes["column"]])  # (b,)
    split_columns = nodes["column"][splits]
    nodes["threshold"][splits] = np.arange(len(splits))
    ranks_left = _unpack_bits(left_sets)
    goes_left = np.zeros((len(left_sets), 32 * WORDS), bool)
    columns = np.flatnonzero(categories)
    known = np.zeros((len(columns), 32 * WORDS), bool)
    for row, column in enumerate(columns):
        values = X[:, column]
        present = np.unique(values[~np.isnan(values)]).astype(np.int64)
        known[row, present] = True
        own_splits = np.flatnonzero(split_columns == column)
        goes_left[np.ix_(own_splits, present)] = ranks_left[own_splits, : len(present)]
    return {
        "category_row": np.where(categories, np.cumsum(categories) - 1, -1).astype(np.int32),
        "known_categories": _pack_bits(known),
        "left_categories": _pack_bits(goes_left),
    }


def _unpack_bits(words: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Return sets (s, 8) of 32 bits per word as booleans (s, 256)."""
    return (words[:, :, None] >> np.arange(32, dtype=np.uint32) & 1).astype(bool).reshape(len(words), 32 * WORDS)


def _pack_bits(bits: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Return booleans (s, 256) as sets (s, 8)."""
    powers = np.uint32(1) << np.arange(32, dtype=np.uint32)
    return (bits.reshape(-1, WORDS, 32) * powers).sum(axis=2, dtype=np.uint32)


def learn_extra(X: NDArray, codes: NDArray[np.int64], weight: NDArray | None, n_trees: int, seed: Any) -> Trees:
    """Learn extremely randomized trees from rows (n, d), class codes (n,) and weights (n,).

    The forest grows in parts, so that only a part of it is in memory in the form of scikit-learn.
    """
    from sklearn.ensemble import ExtraTreesClassifier

    rows, rng, n_classes = as_float32(X), checked_rng(seed), int(codes.max()) + 1
    parts = list[dict[str, NDArray]]()
    max_tree_bytes = 2 * len(rows) * (_NODE_BYTES + 8 * n_classes)  # at most 2 n nodes, each with all classes
    for part in spans(n_trees, max(workers(), rows_per_block(max_tree_bytes))):
        # Each part draws its seeds from `rng` after the previous one, so the forest does not depend on the parts.
        forest = ExtraTreesClassifier(part.stop - part.start, n_jobs=workers(), random_state=rng)
        parts += [_forest_nodes(tree) for tree in forest_trees(forest.fit(rows, codes, weight))]
    baseline = np.zeros(n_classes)
    return trees_of({**_joined(parts), **no_categories(X.shape[1]), "baseline": baseline}, n_trees)


def _forest_nodes(tree: Any) -> dict[str, NDArray]:
    """Return the nodes and leaves of one tree of a forest; a leaf has an entry per class with training rows in it."""
    leaf = tree.children_left < 0
    frequencies = tree.value[leaf, 0]  # (leaves, K)
    leaves, scores = np.nonzero(frequencies)
    return {
        **_nodes(leaf, tree.feature, tree.threshold, tree.missing_go_to_left),
        "share_left": _shares_left(leaf, tree.children_left, tree.children_right, tree.weighted_n_node_samples),
        "entries": np.bincount(leaves, minlength=len(frequencies)),
        "scores": scores.astype(np.int32),
        "values": frequencies[leaves, scores],
    }


def _nodes(leaf: NDArray[np.bool_], column: NDArray, threshold: NDArray, gap_left: NDArray) -> dict[str, NDArray]:
    return {
        "column": np.where(leaf, -1, column).astype(np.int32),
        "threshold": np.where(leaf, 0.0, threshold),
        "gap_left": ~leaf & gap_left.astype(bool),
    }


def _shares_left(leaf: NDArray[np.bool_], left: NDArray, right: NDArray, rows: NDArray) -> NDArray[np.float32]:
    """Return for each node the share of its training rows that go left; 0 for a leaf."""
    inner = np.flatnonzero(~leaf)
    if not (left[inner] == inner + 1).all():
        raise RuntimeError("this version of scikit-learn does not keep trees in preorder; install a supported version")
    shares = np.zeros(len(leaf), np.float32)
    shares[inner] = rows[left[inner]] / (rows[left[inner]] + rows[right[inner]])
    return shares


def _joined(parts: list[dict[str, NDArray]]) -> dict[str, NDArray]:
    """Return the arrays of all trees, with the starts of leaves and trees instead of their sizes."""
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    arrays["leaf_starts"] = _starts(arrays.pop("entries"))
    arrays["starts"] = _starts([len(part["column"]) for part in parts])
    return arrays


def _starts(sizes: Any) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
