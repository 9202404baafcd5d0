"""Learning trees: scikit-learn grows them, and their nodes are copied into arrays.

boosted   HistGradientBoostingClassifier: one tree per score and iteration, whose leaves add to the log-odds
extra     ExtraTreesClassifier: random thresholds; a leaf has the class shares of its training rows

Both keep a tree in preorder (a node, its left subtree, its right subtree), as kernels/trees.py expects it.

A set of categories is 8 words of 32 bits. HistGradientBoostingClassifier puts columns of categories first and numbers
their categories from 0 in ascending order. The copies have the caller's columns and categories.
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
from kway.trees.nodes import Trees, narrowed, no_categories, trees_of

_NODE_BYTES = 64  # bytes of a node of scikit-learn without its class shares
_HELD_OUT = 0.1  # share of the rows on which early stopping measures the loss, the default of scikit-learn


def learn_boosted(
    X: NDArray,
    codes: NDArray[np.int64],
    weight: NDArray | None,
    categories: NDArray[np.bool_],
    settings: dict[str, Any],
) -> Trees:
    """Learn boosted trees from rows (n, d) and class codes (n,); `categories` (d,) marks columns of categories."""
    from sklearn.ensemble import HistGradientBoostingClassifier  # half a second, and no prediction needs it

    X = X.astype(np.float64, copy=False)
    model = HistGradientBoostingClassifier(
        **settings,
        categorical_features=categories if categories.any() else None,
        validation_fraction=_HELD_OUT if _can_hold_out(codes) else None,
    )
    with _few_threads(X.nbytes):
        model.fit(X, codes, weight)
    baseline, grown = boosted_trees(model)
    order = np.concatenate([np.flatnonzero(categories), np.flatnonzero(~categories)])
    arrays = _joined([_boosted_nodes(nodes, order, i % len(baseline)) for i, (nodes, _) in enumerate(grown)])
    if categories.any():
        left = [sets[nodes["bitset_idx"][nodes["is_categorical"] == 1]] for nodes, sets in grown]
        arrays |= _category_sets(X, categories, np.concatenate(left), arrays)
    else:
        arrays |= no_categories(X.shape[1])
    return trees_of({**arrays, "baseline": baseline}, 1)


def _can_hold_out(codes: NDArray[np.int64]) -> bool:
    """Return whether early stopping can hold out a share of the rows of each class."""
    rows = np.bincount(codes)
    held_out = int(np.ceil(_HELD_OUT * len(codes)))
    return bool(rows.min() >= 2 and min(held_out, len(codes) - held_out) >= len(rows))


@contextmanager
def _few_threads(n_bytes: int) -> Iterator[None]:
    """Limit OpenMP, to one thread if rows are few or others use the machine: its threads would wait for each other.

    Such waits took 25 s for a fit of 1 s.
    """
    from threadpoolctl import threadpool_limits

    alone = n_bytes <= CACHE_BYTES or os.getloadavg()[0] > cores()  # more threads run than there are cores
    with threadpool_limits(1 if alone else workers(), user_api="openmp"):
        yield


def _boosted_nodes(nodes: Any, order: NDArray[np.int64], score: int) -> dict[str, NDArray]:
    """Return the nodes and leaves of one tree that adds to a score."""
    leaf = nodes["is_leaf"].astype(bool)
    return {
        **_nodes(leaf, order[nodes["feature_idx"]], nodes["num_threshold"], nodes["missing_go_to_left"]),
        "share_left": _shares_left(leaf, nodes["left"], nodes["right"], nodes["count"].astype(np.float64)),
        "entries": np.ones(leaf.sum(), np.int64),
        "scores": np.full(leaf.sum(), score, np.int32),
        "values": nodes["value"][leaf],
    }


def _category_sets(
    X: NDArray, categories: NDArray[np.bool_], left: NDArray[np.uint32], nodes: dict[str, NDArray]
) -> dict[str, NDArray]:
    """Return the known categories of each column, and the sets (b, 8) of nodes, as the caller numbers categories.

    The threshold of each node that compares categories becomes the row of its set.
    """
    splits = np.flatnonzero((nodes["column"] >= 0) & categories[nodes["column"]])  # (b,)
    split_on = nodes["column"][splits]
    nodes["threshold"][splits] = np.arange(len(splits))
    bits, own = _bits(left), np.zeros((len(left), 32 * WORDS), bool)
    places = np.flatnonzero(categories)
    known = np.zeros((len(places), 32 * WORDS), bool)
    for place, column in enumerate(places):
        values = X[:, column]
        found = np.unique(values[~np.isnan(values)]).astype(np.int64)
        known[place, found] = True
        rows = np.flatnonzero(split_on == column)
        own[np.ix_(rows, found)] = bits[rows, : len(found)]
    category_row = np.where(categories, np.cumsum(categories) - 1, -1).astype(np.int32)
    return {"category_row": category_row, "known_categories": _words(known), "left_categories": _words(own)}


def _bits(words: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Return sets (s, 8) of 32 bits per word as (s, 256)."""
    return (words[:, :, None] >> np.arange(32, dtype=np.uint32) & 1).astype(bool).reshape(len(words), 32 * WORDS)


def _words(bits: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Reverse `_bits`."""
    powers = np.uint32(1) << np.arange(32, dtype=np.uint32)
    return (bits.reshape(-1, WORDS, 32) * powers).sum(axis=2, dtype=np.uint32)


def learn_extra(X: NDArray, codes: NDArray[np.int64], weight: NDArray | None, n_trees: int, seed: Any) -> Trees:
    """Learn extremely randomized trees from rows (n, d) and class codes (n,)."""
    from sklearn.ensemble import ExtraTreesClassifier

    rows, rng, n_classes, parts = narrowed(X), checked_rng(seed), int(codes.max()) + 1, []
    tree_bytes = 2 * len(rows) * (_NODE_BYTES + 8 * n_classes)  # at most; scikit-learn keeps all classes of each node
    for some in spans(n_trees, max(workers(), rows_per_block(tree_bytes))):
        forest = ExtraTreesClassifier(some.stop - some.start, n_jobs=workers(), random_state=rng)  # rng goes on
        parts += [_forest_nodes(tree) for tree in forest_trees(forest.fit(rows, codes, weight))]
    baseline = np.zeros(n_classes)
    return trees_of({**_joined(parts), **no_categories(X.shape[1]), "baseline": baseline}, n_trees)


def _forest_nodes(tree: Any) -> dict[str, NDArray]:
    """Return the nodes and leaves of one tree of a forest; an entry per class with training rows in the leaf."""
    leaf = tree.children_left < 0
    shares = tree.value[leaf, 0]  # (leaves, K)
    of_leaf, scores = np.nonzero(shares)
    return {
        **_nodes(leaf, tree.feature, tree.threshold, tree.missing_go_to_left),
        "share_left": _shares_left(leaf, tree.children_left, tree.children_right, tree.weighted_n_node_samples),
        "entries": np.bincount(of_leaf, minlength=len(shares)),
        "scores": scores.astype(np.int32),
        "values": shares[of_leaf, scores],
    }


def _nodes(leaf: NDArray[np.bool_], column: NDArray, threshold: NDArray, gap_left: NDArray) -> dict[str, NDArray]:
    return {
        "column": np.where(leaf, -1, column).astype(np.int32),
        "threshold": np.where(leaf, 0.0, threshold),
        "gap_left": ~leaf & gap_left.astype(bool),
    }


def _shares_left(leaf: NDArray[np.bool_], left: NDArray, right: NDArray, rows: NDArray) -> NDArray[np.float32]:
    """Return the share of the training rows of each node that go left; 0 for a leaf."""
    inner = np.flatnonzero(~leaf)
    if not (left[inner] == inner + 1).all():
        raise RuntimeError("this version of scikit-learn does not keep trees in preorder; install a supported version")
    shares = np.zeros(len(leaf), np.float32)
    shares[inner] = rows[left[inner]] / (rows[left[inner]] + rows[right[inner]])
    return shares


def _joined(parts: list[dict[str, NDArray]]) -> dict[str, NDArray]:
    """Return the arrays of all trees; `entries` per leaf and nodes per tree become starts."""
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    whole["leaf_starts"] = _starts(whole.pop("entries"))
    whole["starts"] = _starts([len(part["column"]) for part in parts])
    return whole


def _starts(sizes: Any) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
