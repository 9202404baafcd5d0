"""Certified search: exact nearest neighbors that measure few rows, with a lower bound for every other row.

certify(rows, EUCLIDEAN | MANHATTAN) -> Certified, or None if bounds do not save time
Certified.nearest(queries, k) -> Neighbors(ids, distances): those of brute force in float64, ties to the lower id

The Euclidean bound is a PCA sketch plus the norm of the tail: with v the leading principal coordinates, r the norm of
the rest, |v(q) - v(x)|^2 + (r(q) - r(x))^2 <= |q - x|^2 by the triangle inequality.

build.py        builds an index: draws rows, finds the frame and the axes or groups, chooses the length of the sketch,
                sketches all rows, forms cells and codes
choose.py       principal axes, and how many coordinates the scan reads
sketches.py     the space that bounds are computed in; sketches of rows and queries
euclidean.py  manhattan.py   the bounds of each distance, and rows as byte codes
pipeline.py     searches: sketches the queries, finds their nearest cells and a first k-th distance, scans all codes,
                filters the survivors by their fine sketch, and measures the rows that are left

References
----------
Hwang, Han and Ahn (2012), "A fast nearest neighbor search algorithm by nonlinear embedding", CVPR: lower bounds of this
kind, from the means and deviations of blocks of coordinates.
"""

from kway.search.certified.build import certify
from kway.search.certified.pipeline import Certified

__all__ = ["Certified", "certify"]
