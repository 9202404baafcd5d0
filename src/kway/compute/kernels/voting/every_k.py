"""Votes of the 1, 2, ..., k nearest from one pass: only the class of the newest voter can overtake the leader."""

from __future__ import annotations

import numpy as np

from kway.compute.kernels.jit import strict_kernel
from kway.compute.kernels.voting.votes import SLACK


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
