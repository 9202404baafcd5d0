"""Exact nearest neighbors that look at few rows, with proof for the rest.

certify(rows, EUCLIDEAN | MANHATTAN) -> Certified, or None if pruning cannot pay
Certified.nearest(queries, k) -> Neighbors(ids, distances): float64 brute force's answer, ties to the lower id

build.py        a build, in order: rows drawn, the frame, axes or groups, the choice, all rows sketched, cells, codes;
                cosine through unit vectors (Angles)
choose.py       principal axes, and how much of a row the scan sees
sketches.py     the space that bounds are computed in, sketches of rows and queries
euclidean.py  manhattan.py   the bounds of each distance, and rows as byte codes
pipeline.py     a search, in order: queries sketched, their nearest cells, a first k-th distance from those cells, all
                codes scanned, survivors sifted by their fine sketch, exact distances of the few that are left
"""

from kway.search.certified.build import certify
from kway.search.certified.pipeline import Certified

__all__ = ["Certified", "certify"]
