"""Certified search: exact nearest neighbors that measure few rows, with a lower bound for every other row.

certify(scan) -> BoundedScan, or None if bounds do not save time
BoundedScan.nearest(queries, k) -> Neighbors(ids, distances): those of brute force in float64, ties to the lower id

The Euclidean bound is a PCA sketch plus the norm of the tail: with v the leading principal coordinates, r the norm of
the rest, |v(q) - v(x)|^2 + (r(q) - r(x))^2 <= |q - x|^2 by the triangle inequality.

build.py        builds an index: draws rows, finds the frame and the axes or groups, chooses the length of the sketch,
                sketches all rows, forms cells and codes
sketches.py     sketches of rows and queries for each distance, and their byte codes
bounded_scan.py searches: sketches the queries, finds their nearest cells and a first k-th distance, scans all codes,
                filters the survivors by their fine sketch, and measures the rows that are left

References
----------
Hwang, Han and Ahn (2012), "A fast nearest neighbor search algorithm by nonlinear embedding", CVPR: lower bounds of this
kind, from the means and deviations of blocks of coordinates.
"""

from kway.search.certified.bounded_scan import BoundedScan
from kway.search.certified.build import certify

__all__ = ["BoundedScan", "certify"]
