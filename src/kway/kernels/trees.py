"""Decision trees: scores of rows, and Shapley values of the columns (TreeSHAP [1]_, in the polynomial form of [2]_).

The nodes of all trees are in one set of arrays, each tree in preorder: a node, its left subtree, its right subtree. The
left child of node i is therefore i + 1, and `fill_right_children` finds the right child. Shape letters: T trees, m
nodes, L leaves, e leaf entries, d columns of X, c categorical columns, b splits by category, R scores per row. `Nodes`
has one entry per node:

    column      the column that the node compares; -1 for a leaf
    threshold   a row goes left if its value is at most the threshold; for a categorical column, threshold is the row of
                `left_categories` that has the categories that go left
    right       the right child; for a leaf, the number of the leaf
    gap_left    whether a missing value goes left
    share_left  share of the training rows that go left

A leaf adds values to some scores: leaf l has the entries leaf_starts[l] to leaf_starts[l + 1] of `scores`, the numbers
of the scores, and of `values`.

A category is a whole number below 256, and a set of categories is a bit set of 8 words of 32 bits. `category_row` (d,)
is the row of `known_categories` for a categorical column, else -1. A category that training did not see is treated as
a missing value.

References
----------
.. [1] S. Lundberg, G. Erion and S.-I. Lee (2018), Consistent individualized feature attribution for tree ensembles.
   arXiv:1802.03888.
.. [2] P. Yu, C. Xu, A. Bifet and J. Read (2022), Linear TreeShap. NeurIPS.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.kernels.jit import strict_kernel

WORDS = 8  # words of 32 bits in a set of categories


class Nodes(NamedTuple):
    """The nodes and leaves of all trees (see the docstring of the module). The names are those of the model file."""

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
def fill_right_children(starts, column, right):
    """Fill `right` (m,): right children, and numbers of leaves.

    Return the number of leaves, or -1 if the nodes do not form complete trees in preorder.
    """
    open_nodes = np.empty(len(column), np.int64)  # stack of the nodes whose right child has not been reached
    n_leaves = 0
    for tree in range(len(starts) - 1):
        n_open = 0
        for node in range(starts[tree], starts[tree + 1]):
            if node > starts[tree] and column[node - 1] < 0:  # after a leaf, a right subtree begins
                if n_open == 0:
                    return -1
                n_open -= 1
                right[open_nodes[n_open]] = node
            if column[node] >= 0:
                open_nodes[n_open] = node
                n_open += 1
            else:
                right[node] = n_leaves
                n_leaves += 1
        if n_open > 0 or column[starts[tree + 1] - 1] >= 0:
            return -1
    return n_leaves


@strict_kernel
def add_leaves(X, nodes, out):
    """Add the values of the leaves that rows X (n, d) reach to their scores out (n, R), tree by tree."""
    # Numba copies a tuple argument at each call, so `nodes` is not passed on (20 times slower). Numerical comparisons
    # are written inline, because the CPU does not predict branches on the result of `goes_left` (4 times slower).
    # They treat missing values as `goes_left` does.
    starts, column, threshold, right = nodes.starts, nodes.column, nodes.threshold, nodes.right
    gap_left, category_row = nodes.gap_left, nodes.category_row
    known, left_sets = nodes.known_categories, nodes.left_categories
    leaf_starts, scores, values = nodes.leaf_starts, nodes.scores, nodes.values
    for tree in range(len(starts) - 1):
        for i in range(len(X)):
            node = starts[tree]
            j = column[node]
            while j >= 0:
                value = X[i, j]
                if category_row[j] >= 0:
                    left = goes_left(value, threshold[node], gap_left[node], category_row[j], known, left_sets)
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
def goes_left(value, threshold, gap_left, category_row, known, left_sets):
    """Return whether a value goes left at a node with this threshold, `gap_left` and row of known categories."""
    if category_row < 0:
        return gap_left if np.isnan(value) else value <= threshold
    if not (0 <= value < 32 * WORDS) or value != np.floor(value):  # also true for NaN
        return gap_left
    category = np.int64(value)
    if has_category(left_sets, np.int64(threshold), category):
        return True
    return gap_left and not has_category(known, category_row, category)


@strict_kernel
def has_category(sets, row, category):
    """Return whether the set in this row of `sets` (s, 8) contains a category."""
    return (sets[row, category // 32] >> np.uint32(category % 32)) & np.uint32(1) == 1


@strict_kernel
def expected_scores(nodes, out):
    """Add the mean over the training rows of each score to out (R,), tree by tree."""
    reach = np.empty(len(nodes.column))  # share of the training rows that reach each node
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
    """Add the Shapley values of the columns for the score chosen[i] of row i of X (n, d) to out (n, d).

    A tree is a sum of games, one per leaf. For each of the k distinct columns j on the path to a leaf of value v, let
    z_j be the share of training rows that pass all splits on j, and o_j = 1 if the row passes them all, else 0. A
    coalition S of columns is worth

        v prod_{j in S} o_j prod_{j not in S} z_j.

    Let P be the columns with o_j = 1, Z the product of the shares of all others, and w(s) = s! (k - 1 - s)! / k!. The
    Shapley value of column i is

        -v Z sum_s w(s) c_s              if o_i = 0,    sum_s c_s y^s = prod_{j in P} (z_j + y)
         v Z (1 - z_i) sum_s w(s) d_s    if o_i = 1,    sum_s d_s y^s = prod_{j in P, j != i} (z_j + y)

    because c_s and d_s sum the products of shares over all coalitions of s columns. A leaf takes O(k^2) operations.
    """
    starts, column, threshold, right = nodes.starts, nodes.column, nodes.threshold, nodes.right
    gap_left, category_row, share_left = nodes.gap_left, nodes.category_row, nodes.share_left
    known, left_sets = nodes.known_categories, nodes.left_categories
    leaf_starts, scores, values = nodes.leaf_starts, nodes.scores, nodes.values
    max_depth = depth_of(column, right)
    path = np.empty(max_depth, np.int64)  # the splits above the current node
    path_left = np.empty(max_depth, np.bool_)  # whether the path goes left there
    row_left = np.empty(max_depth, np.bool_)  # whether the row goes left there
    columns, shares = np.empty(max_depth, np.int64), np.empty(max_depth)  # of the distinct columns on the path
    passes, coefficients = np.empty(max_depth, np.bool_), np.empty(max_depth + 1)
    position = np.full(X.shape[1], -1, np.int64)
    for i in range(len(X)):
        depth = 0
        for node in range(starts[-1]):  # all trees: the depth is 0 again after the last leaf of a tree
            j = column[node]
            if j >= 0:
                path[depth], path_left[depth] = node, True
                row_left[depth] = goes_left(X[i, j], threshold[node], gap_left[node], category_row[j], known, left_sets)
                depth += 1
                continue
            value = leaf_value(right[node], chosen[i], leaf_starts, scores, values)
            if value != 0.0:
                k = merge_path(path[:depth], path_left, row_left, column, share_left, position, columns, shares, passes)
                add_leaf(value, k, columns, shares, passes, coefficients, out[i])
            depth = next_depth(depth, path_left)


@strict_kernel
def depth_of(column, right):
    """Return the number of splits on the longest path of all trees, at least 1."""
    depth, max_depth = np.zeros(len(column), np.int64), 1
    for node in range(len(column)):
        if column[node] >= 0:
            depth[node + 1] = depth[right[node]] = depth[node] + 1
            max_depth = max(max_depth, depth[node] + 1)
    return max_depth


@strict_kernel
def next_depth(depth, path_left):
    """Return the number of splits above the node after a leaf, and turn the last left step of the path to the right."""
    while depth > 0 and not path_left[depth - 1]:
        depth -= 1
    if depth > 0:
        path_left[depth - 1] = False
    return depth


@strict_kernel
def leaf_value(leaf, score, leaf_starts, scores, values):
    """Return what a leaf adds to a score."""
    for entry in range(leaf_starts[leaf], leaf_starts[leaf + 1]):
        if scores[entry] == score:
            return values[entry]
    return 0.0


@strict_kernel
def merge_path(path, path_left, row_left, column, share_left, position, columns, shares, passes):
    """Merge the splits of a path by column, and return the number of distinct columns.

    The last three arrays are filled: the columns, their shares z, and whether the row passes all splits on them.
    `position` (d,) is scratch memory, which is -1 everywhere before and after a call.
    """
    k = 0
    for level in range(len(path)):
        j, share = column[path[level]], np.float64(share_left[path[level]])
        at = position[j]
        if at < 0:
            at = position[j] = k
            columns[k], shares[k], passes[k] = j, 1.0, True
            k += 1
        shares[at] *= share if path_left[level] else 1.0 - share
        passes[at] = passes[at] and row_left[level] == path_left[level]
    for at in range(k):
        position[columns[at]] = -1
    return k


@strict_kernel
def add_leaf(value, k, columns, shares, passes, coefficients, out):
    """Add the Shapley values of one leaf with k columns on its path to out (d,); `coefficients` is scratch memory."""
    n_passed, scale = 0, value  # scale becomes v Z
    coefficients[0] = 1.0
    for at in range(k):
        if passes[at]:  # multiply the polynomial by (z + y)
            coefficients[n_passed + 1] = coefficients[n_passed]
            for s in range(n_passed, 0, -1):
                coefficients[s] = coefficients[s - 1] + shares[at] * coefficients[s]
            coefficients[0] *= shares[at]
            n_passed += 1
        else:
            scale *= shares[at]
    if n_passed < k:
        total = weighted_sum(n_passed, k, coefficients)
        for at in range(k):
            if not passes[at]:
                out[columns[at]] -= scale * total
    for at in range(k):
        if passes[at]:
            out[columns[at]] += scale * (1.0 - shares[at]) * weighted_sum_without(shares[at], n_passed, k, coefficients)


@strict_kernel
def weighted_sum(n_passed, k, coefficients):
    """Return sum_s w(s) c_s for s = 0 to n_passed < k."""
    weight = 1.0 / k  # w(0) = (k - 1)! / k!
    total = weight * coefficients[0]
    for s in range(1, n_passed + 1):
        weight *= s / (k - s)  # w(s) = w(s - 1) s / (k - s)
        total += weight * coefficients[s]
    return total


@strict_kernel
def weighted_sum_without(share, n_passed, k, coefficients):
    """Return sum_s w(s) d_s, where sum_s d_s y^s is the polynomial of c_s divided by (share + y)."""
    weight = 1.0 / k
    for s in range(1, n_passed):
        weight *= s / (k - s)
    quotient = coefficients[n_passed]  # synthetic division, from the highest power: d_s = c_(s+1) - share d_(s+1)
    total = weight * quotient
    for s in range(n_passed - 1, 0, -1):
        weight *= (k - s) / s
        quotient = coefficients[s] - share * quotient
        total += weight * quotient
    return total
