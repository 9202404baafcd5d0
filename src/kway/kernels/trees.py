"""Decision trees: the sum of the leaves that rows reach, and Shapley values of the columns.

The nodes of all trees are in one set of arrays, each tree in preorder: a node, its left subtree, its right subtree. The
left child of node i is therefore i + 1, and `link` finds the right child. `Nodes` has one entry per node:

    column      the column that is compared; -1 for a leaf
    threshold   a row goes left if its value is at most this; for a column of categories, the row of `left_categories`
    right       the right child; for a leaf, its number
    gap_left    whether a missing value goes left
    share_left  share of the training rows that go left

A leaf adds values to some scores: leaf l has the entries leaf_starts[l] to leaf_starts[l + 1] of `scores` and `values`.

A category is a whole number below 256. A set of categories is 8 words of 32 bits. `category_row` (d,) is the row of
`known_categories` for a column of categories, else -1. A category that is not known counts as missing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.kernels.jit import strict_kernel

WORDS = 8  # words of 32 bits in a set of categories


class Nodes(NamedTuple):
    """The nodes and leaves of all trees (see the docstring of the module)."""

    starts: NDArray[np.int64]  # (T + 1,) first node of each tree
    column: NDArray[np.int32]  # (m,)
    threshold: NDArray[np.float64]  # (m,)
    right: NDArray[np.int32]  # (m,)
    gap_left: NDArray[np.bool_]  # (m,)
    share_left: NDArray[np.float32]  # (m,)
    leaf_starts: NDArray[np.int64]  # (L + 1,)
    scores: NDArray[np.int32]  # (e,)
    values: NDArray[np.float64]  # (e,)
    category_row: NDArray[np.int32]  # (d,)
    known_categories: NDArray[np.uint32]  # (c, 8)
    left_categories: NDArray[np.uint32]  # (b, 8)


@strict_kernel
def link(starts, column, right):
    """Fill the right children (m,) and the numbers of leaves; return the number of leaves, or -1 if no trees fit."""
    waiting = np.empty(len(column), np.int64)  # nodes whose right child is still to come
    leaves = 0
    for tree in range(len(starts) - 1):
        n_waiting = 0
        for node in range(starts[tree], starts[tree + 1]):
            if node > starts[tree] and column[node - 1] < 0:
                if n_waiting == 0:
                    return -1
                n_waiting -= 1
                right[waiting[n_waiting]] = node
            if column[node] >= 0:
                waiting[n_waiting] = node
                n_waiting += 1
            else:
                right[node] = leaves
                leaves += 1
        if n_waiting > 0 or column[starts[tree + 1] - 1] >= 0:
            return -1
    return leaves


@strict_kernel
def add_leaves(X, nodes, out):
    """Add the values of the leaves that rows X (n, d) reach to their scores out (n, R), tree by tree."""
    # The tuple is not passed on, because numba copies it for each call (20 times slower). Numbers are compared in
    # place, because the CPU predicts these branches, but not the result of a function (4 times slower).
    starts, column, threshold, right, gap_left = (
        nodes.starts,
        nodes.column,
        nodes.threshold,
        nodes.right,
        nodes.gap_left,
    )
    leaf_starts, scores, values = nodes.leaf_starts, nodes.scores, nodes.values
    category_row, known, sets = nodes.category_row, nodes.known_categories, nodes.left_categories
    for tree in range(len(starts) - 1):
        for i in range(len(X)):
            node = starts[tree]
            j = column[node]
            while j >= 0:
                value = X[i, j]
                if category_row[j] >= 0:
                    left = goes_left(value, threshold[node], gap_left[node], category_row[j], known, sets)
                elif np.isnan(value):
                    left = gap_left[node]
                else:
                    left = value <= threshold[node]
                node = node + 1 if left else np.int64(right[node])
                j = column[node]
            leaf = right[node]
            for entry in range(leaf_starts[leaf], leaf_starts[leaf + 1]):
                out[i, scores[entry]] += values[entry]


@strict_kernel
def goes_left(value, threshold, gap_left, category_row, known, sets):
    """Return whether a value goes left at a node, given the node's entries and the sets of categories."""
    if category_row < 0:
        return gap_left if np.isnan(value) else value <= threshold
    if not (0 <= value < 32 * WORDS) or value != np.floor(value):  # NaN too
        return gap_left
    category = np.int64(value)
    if has_category(sets, np.int64(threshold), category):
        return True
    return gap_left and not has_category(known, category_row, category)


@strict_kernel
def has_category(sets, row, category):
    """Return whether a category is in a row of sets (s, 8)."""
    return (sets[row, category // 32] >> np.uint32(category % 32)) & np.uint32(1) == 1


@strict_kernel
def expected_scores(nodes, out):
    """Add the mean over the training rows of each score to out (R,), one tree after the other."""
    reach = np.empty(len(nodes.column))
    for tree in range(len(nodes.starts) - 1):
        first, end = nodes.starts[tree], nodes.starts[tree + 1]
        reach[first] = 1.0
        for node in range(first, end):
            if nodes.column[node] >= 0:
                reach[node + 1] = reach[node] * nodes.share_left[node]
                reach[nodes.right[node]] = reach[node] * (1.0 - nodes.share_left[node])
            else:
                leaf = nodes.right[node]
                for entry in range(nodes.leaf_starts[leaf], nodes.leaf_starts[leaf + 1]):
                    out[nodes.scores[entry]] += reach[node] * nodes.values[entry]


@strict_kernel
def add_shapley_values(X, chosen, nodes, out):
    """Add the Shapley values of the columns for the score chosen[i] of each row to out (n, d).

    The game of a leaf. A column on the path to the leaf has a share z: of the training rows that pass its comparisons,
    and it is met (o = 1) if the row passes them all. Without knowing a column, a row passes with probability z. A known
    set S of columns gives the leaf's value v times prod_{j in S} o_j prod_{j not in S} z_j. With m columns on the path,
    of which those in M are met and the others have the product Z of shares,

        w(s) = s! (m - 1 - s)! / m!
        a column that is not met    -v Z sum_s w(s) c_s            prod_{j in M} (z_j + y) = sum_s c_s y^s
        a column i that is met       v Z (1 - z_i) sum_s w(s) d_s  prod_{j in M, j != i} (z_j + y) = sum_s d_s y^s

    A leaf of depth D costs D^2 operations, and no set is enumerated.
    """
    starts, column, threshold, right, gap_left = (
        nodes.starts,
        nodes.column,
        nodes.threshold,
        nodes.right,
        nodes.gap_left,
    )
    leaf_starts, scores, values, share_left = nodes.leaf_starts, nodes.scores, nodes.values, nodes.share_left
    category_row, known, sets = nodes.category_row, nodes.known_categories, nodes.left_categories
    deepest = depth_of(column, right)
    path, left = np.empty(deepest, np.int64), np.empty(deepest, np.bool_)
    met, columns, shares = np.empty(deepest, np.bool_), np.empty(deepest, np.int64), np.empty(deepest)
    passed, powers = np.empty(deepest, np.bool_), np.empty(deepest + 1)
    place = np.full(X.shape[1], -1, np.int64)
    for i in range(len(X)):
        depth = 0
        for node in range(starts[-1]):  # tree by tree: the depth is 0 after the last leaf of a tree
            j = column[node]
            if j >= 0:
                path[depth], left[depth] = node, True
                met[depth] = goes_left(X[i, j], threshold[node], gap_left[node], category_row[j], known, sets)
                depth += 1
                continue
            value = leaf_value(right[node], chosen[i], leaf_starts, scores, values)
            if value != 0.0:
                m = merge_path(depth, path, left, met, columns, shares, passed, place, column, share_left)
                add_leaf(value, m, columns, shares, passed, powers, out[i])
            depth = leave(depth, left)


@strict_kernel
def depth_of(column, right):
    """Return the number of branches on the longest path, at least 1."""
    level, deepest = np.zeros(len(column), np.int64), 1
    for node in range(len(column)):
        if column[node] >= 0:
            level[node + 1] = level[right[node]] = level[node] + 1
            deepest = max(deepest, level[node] + 1)
    return deepest


@strict_kernel
def leave(depth, left):
    """Return the number of branches above the next node after a leaf: the last left branch becomes a right branch."""
    while depth > 0 and not left[depth - 1]:
        depth -= 1
    if depth > 0:
        left[depth - 1] = False
    return depth


@strict_kernel
def leaf_value(leaf, score, leaf_starts, scores, values):
    """Return what a leaf adds to a score."""
    for entry in range(leaf_starts[leaf], leaf_starts[leaf + 1]):
        if scores[entry] == score:
            return values[entry]
    return 0.0


@strict_kernel
def merge_path(depth, path, left, met, columns, shares, passed, place, column, share_left):
    """Fill the distinct columns of a path, their shares and whether the row passes; return their number.

    `place` (d,) is -1 everywhere, before and after.
    """
    m = 0
    for level in range(depth):
        node = path[level]
        j, share = column[node], np.float64(share_left[node])
        at = place[j]
        if at < 0:
            at = place[j] = m
            columns[m], shares[m], passed[m] = j, 1.0, True
            m += 1
        shares[at] *= share if left[level] else 1.0 - share
        passed[at] = passed[at] and met[level] == left[level]
    for at in range(m):
        place[columns[at]] = -1
    return m


@strict_kernel
def add_leaf(value, m, columns, shares, passed, powers, out):
    """Add the Shapley values of one leaf with m columns on its path to out (d,)."""
    n_met, missed = 0, value
    powers[0] = 1.0
    for at in range(m):
        if passed[at]:  # times (z + y)
            powers[n_met + 1] = powers[n_met]
            for s in range(n_met, 0, -1):
                powers[s] = powers[s - 1] + shares[at] * powers[s]
            powers[0] *= shares[at]
            n_met += 1
        else:
            missed *= shares[at]
    if n_met < m:
        total, weight = 0.0, 1.0 / m
        for s in range(n_met + 1):
            total += weight * powers[s]
            weight *= (s + 1.0) / max(1, m - 1 - s)
        for at in range(m):
            if not passed[at]:
                out[columns[at]] -= missed * total
    for at in range(m):
        if passed[at]:
            out[columns[at]] += missed * (1.0 - shares[at]) * sum_without(shares[at], n_met, m, powers)


@strict_kernel
def sum_without(share, n_met, m, powers):
    """Return sum_s w(s) d_s, where sum_s d_s y^s is the polynomial `powers` divided by (share + y)."""
    weight = 1.0 / m  # w(n_met - 1) = (n_met - 1)! (m - n_met)! / m!
    for s in range(n_met - 1):
        weight *= (s + 1.0) / (m - 1 - s)
    total, coefficient = 0.0, 0.0
    for s in range(n_met - 1, -1, -1):
        coefficient = powers[s + 1] - share * coefficient
        total += weight * coefficient
        weight *= (m - s) / max(1.0, np.float64(s))  # w(s - 1) = w(s) (m - s) / s
    return total
