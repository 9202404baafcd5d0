"""Votes: class codes (q, k) and weights (q, k) of voters give the classes voted for (q, k), best first.

    total(c) = sum of the weights of the voters of class c

Two totals that differ only by rounding count as equal, and the class with the lower rank wins. No array has one column
per class.
"""

from __future__ import annotations

import numpy as np

from kway.kernels.float32 import SUM_ROUNDING
from kway.kernels.jit import strict_kernel


@strict_kernel
def count(codes, weights, rank, classes, totals, true_codes, winners, true_shares):
    """Fill classes (q, k) int64 and totals (q, k) float64, best first; -1 and 0 pad.

    codes (q, k) have the nearest voter first, and -1 for a neighbor that does not vote. Weights are >= 0; while all of
    them are zero, every voter counts the same. Ties go to the class with the lower rank (K,). If rank is empty, they go
    to the class of the nearest voter.

    If true_codes (q,) is not empty, column j of winners (q, k) and of true_shares (q, k) is the winner and the share of
    the true class among the first j + 1 voters, so one pass gives the vote for every number of neighbors.
    """
    n_queries, n_voters = codes.shape
    tie_rank = np.empty(n_voters, np.int64)  # which of two tied classes wins: the one with the lower number
    for i in range(n_queries):
        candidates, sums = classes[i], totals[i]
        candidates[:], sums[:] = -1, 0.0
        n_classes, voters, total = 0, 0, 0.0
        for j in range(n_voters):
            if codes[i, j] >= 0:
                if total == 0.0 and weights[i, j] > 0.0:  # the equal votes of voters without weight no longer count
                    sums[:n_classes] = 0.0
                    for place in range(1, n_classes):
                        move_up(candidates, sums, tie_rank, place)
                total += weights[i, j]
                voters += 1
                place = find(candidates, n_classes, codes[i, j])
                if place == n_classes:
                    candidates[n_classes] = codes[i, j]
                    tie_rank[n_classes] = rank[codes[i, j]] if len(rank) > 0 else j
                    n_classes += 1
                sums[place] += weights[i, j] if total > 0.0 else 1.0
                move_up(candidates, sums, tie_rank, place)
            if len(true_codes) > 0:
                place = find(candidates, n_classes, true_codes[i])
                winners[i, j] = candidates[0]
                true_shares[i, j] = sums[place] / (total if total > 0.0 else voters) if place < n_classes else 0.0


@strict_kernel
def find(candidates, n_classes, code):
    """Return the place of a class among the first n_classes candidates, or n_classes if it is not among them."""
    place = 0
    while place < n_classes and candidates[place] != code:
        place += 1
    return place


@strict_kernel
def move_up(candidates, sums, tie_rank, place):
    """Move the class at `place` before the classes that it beats."""
    while place > 0:
        above = place - 1
        gap, slack = sums[place] - sums[above], SUM_ROUNDING * max(sums[place], sums[above])
        if not (gap > slack or (abs(gap) <= slack and tie_rank[place] < tie_rank[above])):
            break
        candidates[place], candidates[above] = candidates[above], candidates[place]
        sums[place], sums[above] = sums[above], sums[place]
        tie_rank[place], tie_rank[above] = tie_rank[above], tie_rank[place]
        place = above


@strict_kernel
def complete(classes, totals, order, n_voted):
    """Append classes without votes, in the given order (K,), to the first n_voted columns of classes (q, m)."""
    n_queries, n_columns = classes.shape
    for i in range(n_queries):
        voted = min(n_voted, n_columns)
        while voted > 0 and classes[i, voted - 1] < 0:
            voted -= 1
        size = voted
        for code in order:
            if size == n_columns:
                break
            is_voted = False
            for j in range(voted):
                is_voted = is_voted or classes[i, j] == code
            if not is_voted:
                classes[i, size] = code
                totals[i, size] = 0.0
                size += 1
