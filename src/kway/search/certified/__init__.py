"""Exact nearest neighbours that look at few rows, with proof for the rest.

certify(rows, EUCLIDEAN | MANHATTAN, n_jobs) -> Certified, or None where pruning cannot pay
Certified.nearest(queries, k) -> Neighbors(ids, distances): float64 brute force's answer, ties to the lower id

A build, in order (build.py)                          A search, in order (pipeline.py)
  choose.py     rows drawn to ask and to look among     sketches.py   the queries sketched as the rows were
  frame.py      the space bounds are computed in        cells.py      their nearest cells
  axes.py, groups.py   what is summed into a bound      euclidean.py, manhattan.py   a panel coded, then kernels:
  choose.py     how much of a row the scan sees           warm.py    a first k-th distance from those cells
  euclidean.py, manhattan.py   all rows sketched          sweep.py   all codes scanned (tiles.py),
  cells.py      which rows lie together                            survivors sifted by their fine sketch
  euclidean.py, manhattan.py   coarse sketches coded      refine.py  exact distances of the few that are left
angles.py searches unit vectors for cosine.
"""

from kway.search.certified.build import certify
from kway.search.certified.pipeline import Certified

__all__ = ["Certified", "certify"]
