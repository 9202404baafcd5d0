"""What a job will cost, before it starts; `kway.plan` is the function.

size.py           Size: rows, features, classes; the bytes of rows and labels
linear_ways.py    softmax, one-vs-all, sampled softmax, centroids: K x d numbers, one small formula a way
row_ways.py       neighbours: flat, landmarks, bytes, bits: n x d numbers
gpu_ways.py       a GPU: what is held there, and what it takes
far_ways.py       m machines
way.py            Way: parameters, bytes, operations, seconds, what is given up
plan.py           plan(): every way on one size, and which is advised
rates.py          how fast this machine is, kept in the cache folder; calibrate.py measures it in seconds
machine.py        what memory there is
guard.py          what `fit` asks before it starts: refuse what will not fit, say how long the rest will take
comparison.py     what `kway fit` takes to compare families: whether on a sample, and how long
words.py          counts, bytes and seconds for people
"""

from kway.planning.plan import Plan, plan
from kway.planning.rates import Rates
from kway.planning.way import Way

__all__ = ["Plan", "Rates", "Way", "plan"]
