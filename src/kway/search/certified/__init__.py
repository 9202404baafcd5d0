"""Exact nearest neighbours that look at few rows, with proof for the rest.

certify(rows, "euclidean" | "manhattan") -> Certified, or None where pruning cannot pay
Certified.nearest(queries, k) -> Neighbors(ids, distances): float64 brute force's answer, ties to the lower id

frame.py      the space bounds are computed in       axes.py, groups.py    what is summed into a bound
euclidean.py, manhattan.py   the two bounds          choose.py    how much of a row the scan should see
cells.py      which rows lie together                pipeline.py  the search
"""

from kway.search.certified.build import certify
from kway.search.certified.pipeline import Certified

__all__ = ["Certified", "certify"]
