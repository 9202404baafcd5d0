"""Votes: class codes (q, k) and their weights (q, k) -> the classes voted for, best first (q, k). Never q x K.

    total(c) = sum of the weights of the voters of class c

Two totals that differ by rounding alone count as equal, and the tie goes to the lower rank.
"""

from __future__ import annotations

import numpy as np

from kway.kernels.jit import strict_kernel

SLACK = 1e-12  # relative; sums of up to thousands of float64 votes in another order differ by less


@strict_kernel
def tally(codes, weights, rank, classes, totals):
    """Fill classes (q, k) int64 (-1 pads) and totals (q, k) float64, best first.

    codes (q, k), -1 where nobody votes, nearest voter first. Ties go by rank[class] (K,); where rank is empty, to the
    class whose nearest voter is nearest, which is the order in which the classes are met.
    """
    n_queries, n_voters = codes.shape
    by_rank = len(rank) > 0
    for i in range(n_queries):
        found = 0
        for j in range(n_voters):
            code = codes[i, j]
            if code < 0:
                continue
            place = 0
            while place < found and classes[i, place] != code:
                place += 1
            if place == found:
                classes[i, found] = code
                totals[i, found] = 0.0
                found += 1
            totals[i, place] += weights[i, j]
        for a in range(1, found):  # insertion sort: stable, so that equal totals keep the order of meeting
            code, total = classes[i, a], totals[i, a]
            b = a
            while b > 0:
                gap = total - totals[i, b - 1]
                slack = SLACK * max(total, totals[i, b - 1])
                tied_better = by_rank and abs(gap) <= slack and rank[code] < rank[classes[i, b - 1]]
                if not (gap > slack or tied_better):
                    break
                classes[i, b], totals[i, b] = classes[i, b - 1], totals[i, b - 1]
                b -= 1
            classes[i, b], totals[i, b] = code, total
        for a in range(found, n_voters):
            classes[i, a] = -1
            totals[i, a] = 0.0


@strict_kernel
def fill_weight(row_weights, need, filled):
    """How much of each voter counts until `need` rows are full: row_weights (q, k) -> filled (q, k); the part missing.

    A row of weight w stands for w rows, so voters are taken from the nearest on and the last one counts in part.
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
    """Pad voted classes (q, m) to m classes with those that nobody voted for, in the given order (K,), at total 0."""
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


@strict_kernel
def every_k(codes, weights, rank, own, winners, own_shares):
    """codes, weights (q, k), nearest first -> winners (q, k) and the share of each query's own class (q, k).

    Column j is the answer of the j + 1 nearest. Ties go to the lower rank[class] (K,); where rank is empty, to the
    class met first. Weights are >= 0; where all so far are zero, every voter counts the same.
    """
    queries, k = codes.shape
    classes = np.empty(k, np.int64)
    totals = np.empty(k)
    counts = np.empty(k)
    for i in range(queries):
        found = 0
        lead = lead_count = 0  # places of the leaders by weight and by number
        total = 0.0
        for j in range(k):
            place = 0
            while place < found and classes[place] != codes[i, j]:
                place += 1
            if place == found:
                classes[found] = codes[i, j]
                totals[found] = 0.0
                counts[found] = 0.0
                found += 1
            totals[place] += weights[i, j]
            counts[place] += 1.0
            total += weights[i, j]
            lead = overtake(totals, classes, rank, lead, place)
            lead_count = overtake(counts, classes, rank, lead_count, place)
            best = lead if total > 0 else lead_count
            winners[i, j] = classes[best]
            own_shares[i, j] = 0.0
            for place in range(found):
                if classes[place] == own[i]:
                    own_shares[i, j] = totals[place] / total if total > 0 else counts[place] / (j + 1)


@strict_kernel
def overtake(totals, classes, rank, lead, place):
    """The leader after the total at `place` grew."""
    if place == lead:
        return lead
    gap = totals[place] - totals[lead]
    slack = SLACK * max(totals[place], totals[lead])
    if gap > slack:
        return place
    if abs(gap) <= slack:
        if len(rank) > 0:
            return place if rank[classes[place]] < rank[classes[lead]] else lead
        return min(place, lead)  # the class met first has the nearest voter
    return lead
