"""Votes: class codes (q, k) and their weights (q, k) -> the classes voted for, best first (q, k). Never q x K.

    total(c) = sum of the weights of the voters of class c

Two totals that differ only by rounding count as equal, and the tie goes to the lower rank.
"""

from __future__ import annotations

import numpy as np

from kway.kernels.float32 import SUM_ROUNDING
from kway.kernels.jit import strict_kernel


@strict_kernel
def count(codes, weights, rank, classes, totals, own, winners, own_shares):
    """Fill classes (q, k) int64 and totals (q, k) float64, best first; -1 and 0 pad.

    codes (q, k), nearest voter first, -1 if nobody votes. Weights are >= 0; as long as all are zero, every voter counts
    the same. Ties go to the lower rank[class] (K,); if rank is empty, to the class whose nearest voter is nearest.

    If own (q,), the true classes, is not empty, column j of winners (q, k) and own_shares (q, k) is the winner and the
    share of the true class among the first j + 1 voters: one pass gives the vote for every number of neighbors.
    """
    n_queries, n_voters = codes.shape
    order = np.empty(n_voters, np.int64)  # of the classes in a tie
    for i in range(n_queries):
        names, sums = classes[i], totals[i]
        names[:], sums[:] = -1, 0.0
        found, voters, total = 0, 0, 0.0
        for j in range(n_voters):
            if codes[i, j] >= 0:
                if total == 0.0 and weights[i, j] > 0.0:  # the equal votes so far count no more
                    sums[:found] = 0.0
                    for place in range(1, found):
                        rise(names, sums, order, place)
                total += weights[i, j]
                voters += 1
                place = find(names, found, codes[i, j])
                if place == found:
                    names[found] = codes[i, j]
                    order[found] = rank[codes[i, j]] if len(rank) > 0 else j
                    found += 1
                sums[place] += weights[i, j] if total > 0.0 else 1.0
                rise(names, sums, order, place)
            if len(own) > 0:
                place = find(names, found, own[i])
                winners[i, j] = names[0]
                own_shares[i, j] = sums[place] / (total if total > 0.0 else voters) if place < found else 0.0


@strict_kernel
def find(names, found, code):
    """Return the place of a class among the first `found` names; `found` if it is not there."""
    place = 0
    while place < found and names[place] != code:
        place += 1
    return place


@strict_kernel
def rise(names, sums, order, place):
    """Move the class at `place` up past those that it beats."""
    while place > 0:
        above = place - 1
        gap, slack = sums[place] - sums[above], SUM_ROUNDING * max(sums[place], sums[above])
        if not (gap > slack or (abs(gap) <= slack and order[place] < order[above])):
            break
        names[place], names[above] = names[above], names[place]
        sums[place], sums[above] = sums[above], sums[place]
        order[place], order[above] = order[above], order[place]
        place = above


@strict_kernel
def fill_weight(row_weights, need, filled):
    """Fill the part (q, k) of each voter that counts until `need` rows are full, and return the largest part missing.

    A row of weight w stands for w rows: voters count from the nearest on, the last one in part.
    """
    n_queries, n_voters = row_weights.shape
    worst = 0.0
    for i in range(n_queries):
        left = need
        for j in range(n_voters):
            part = min(row_weights[i, j], left)
            filled[i, j] = part
            left -= part
        worst = max(worst, left)
    return worst


@strict_kernel
def complete(classes, totals, order, n_found):
    """Pad voted classes (q, m) with those that got no vote, in the given order (K,), at total 0."""
    n_queries, n_wanted = classes.shape
    for i in range(n_queries):
        found = min(n_found, n_wanted)
        while found > 0 and classes[i, found - 1] < 0:
            found -= 1
        voted = found
        at = 0
        while found < n_wanted and at < len(order):
            code = order[at]
            at += 1
            known = False
            for j in range(voted):
                known = known or classes[i, j] == code
            if not known:
                classes[i, found] = code
                totals[i, found] = 0.0
                found += 1
