"""Contributions of columns are the Shapley values that their definition gives, and add up to the score."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kway
from kway.kernels import trees as kernels


def small_problem(seed):
    """Rows of at most five columns, one of categories, with gaps; labels and queries."""
    rng = np.random.default_rng(seed)
    n, d, n_classes = int(rng.integers(60, 200)), int(rng.integers(1, 6)), int(rng.integers(2, 5))
    X = rng.normal(size=(n, d))
    X[:, -1] = rng.integers(0, 6, n)
    X[rng.random((n, d)) < 0.1] = np.nan
    y = (np.nan_to_num(X).sum(axis=1) * 2 + rng.normal(size=n)).round().astype(int) % n_classes
    y[:n_classes] = np.arange(n_classes)
    return X, y, X[rng.permutation(n)[:3]] + 0.0


def goes_left(x, node, nodes):
    """Whether a row goes left at a node."""
    j = nodes.column[node]
    sets = nodes.known_categories, nodes.left_categories
    return kernels.goes_left(x[j], nodes.threshold[node], nodes.gap_left[node], nodes.category_row[j], *sets)


def expectation(nodes, node, x, known, score):
    """Mean of a subtree for one score if the columns in `known` are those of x and the others as in training."""
    if nodes.column[node] < 0:
        leaf = nodes.right[node]
        entries = range(nodes.leaf_starts[leaf], nodes.leaf_starts[leaf + 1])
        return sum(nodes.values[e] for e in entries if nodes.scores[e] == score)
    sides = [node + 1, nodes.right[node]]
    if nodes.column[node] in known:
        return expectation(nodes, sides[0 if goes_left(x, node, nodes) else 1], x, known, score)
    share = float(nodes.share_left[node])
    left, right = (expectation(nodes, side, x, known, score) for side in sides)
    return share * left + (1 - share) * right


def shapley_values(trees, x, score):
    """Shapley values (d,) over all subsets of columns, and the value of the empty set."""
    d = len(x)

    def worth(known):
        total = sum(expectation(trees.nodes, root, x, known, score) for root in trees.nodes.starts[:-1])
        return (trees.baseline[score] + total) / trees.divisor

    worths = {s: worth(s) for m in range(d + 1) for s in itertools.combinations(range(d), m)}
    values = np.zeros(d)
    for known, value in worths.items():
        for j in set(range(d)) - set(known):
            size = len(known)
            weight = math.factorial(size) * math.factorial(d - 1 - size) / math.factorial(d)
            values[j] += weight * (worths[tuple(sorted((*known, j)))] - value)
    return values, worths[()]


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 10**9), st.sampled_from(["boosted", "extra"]))
def test_they_are_the_shapley_values_of_the_definition(seed, kind):
    X, y, Q = small_problem(seed)
    model = kway.TreesClassifier(kind, n_trees=4, categorical_features=[X.shape[1] - 1]).fit(X, y)
    codes = np.random.default_rng(seed).integers(0, len(model.classes_), len(Q))
    values, baseline = model._contributions(Q, codes)
    one_score = len(model._trees.baseline) == 1
    for i, code in enumerate(codes):
        rows = Q if kind == "boosted" else Q.astype(np.float32)
        expected, empty = shapley_values(model._trees, rows[i], 0 if one_score else code)
        sign = -1 if one_score and code == 0 else 1
        np.testing.assert_allclose(values[i], sign * expected, rtol=0, atol=1e-12)
        assert baseline[i] == pytest.approx(sign * empty, abs=1e-12)


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 10**9), st.sampled_from(["boosted", "extra"]), st.sampled_from([np.float32, np.float64]))
def test_they_add_up_to_the_score(seed, kind, dtype):
    rng = np.random.default_rng(seed)
    n, d, n_classes = 300, int(rng.integers(1, 20)), int(rng.choice([2, 3, 7]))
    X = rng.normal(size=(n, d)).astype(dtype)
    X[rng.random((n, d)) < 0.05] = np.nan
    y = rng.integers(0, n_classes, n)
    model = kway.TreesClassifier(kind, n_trees=10).fit(X, y)
    codes = rng.integers(0, n_classes, n)
    values, baseline = model._contributions(X, codes)
    f = model._raw(X)
    scores = np.where(codes == 1, 1, -1) * f[:, 0] if f.shape[1] == 1 else f[np.arange(n), codes]
    np.testing.assert_allclose(baseline + values.sum(axis=1), scores, rtol=0, atol=1e-11)


def test_the_shares_of_a_node_are_those_of_the_training_rows():
    X, y, _ = small_problem(3)
    nodes = kway.TreesClassifier(n_trees=3).fit(X, y)._trees.nodes
    passed = np.zeros((2, len(nodes.column)))
    for root in nodes.starts[:-1]:
        for x in X:
            node = root
            while nodes.column[node] >= 0:
                left = goes_left(x, node, nodes)
                passed[int(left), node] += 1
                node = node + 1 if left else nodes.right[node]
    inner = nodes.column >= 0
    assert inner.any()
    np.testing.assert_allclose(nodes.share_left[inner], passed[1, inner] / passed[:, inner].sum(axis=0), rtol=1e-6)


def test_a_column_that_no_tree_compares_contributes_nothing():
    X, y, _ = small_problem(4)
    wide = np.column_stack([X, np.zeros(len(X))])
    model = kway.TreesClassifier("extra", n_trees=5).fit(wide, y)
    values, _ = model._contributions(wide, y)
    assert (values[:, -1] == 0).all()
    assert values[:, :-1].any()
