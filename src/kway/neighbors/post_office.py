"""The post-office example: which place is nearest to a point on earth? Every index is asked, and all should agree."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kway.data.datasets.post_offices import PostOffices
from kway.search.auto import INDEXES
from kway.search.live import Recipe
from kway.search.metrics import Haversine

HOBOKEN = (40.74627, -74.02431)  # the query of the example: on the Hudson, between New Jersey and Manhattan


@dataclass(frozen=True)
class Answer:
    """What one index said, how many places it measured for it, and how long that took."""

    index: str
    row: int
    name: str
    zip: str
    km: float
    touched: float
    milliseconds: float


class Answers(NamedTuple):
    """One answer an index, and whether all are the same place at the same distance."""

    answers: list[Answer]
    agree: bool


def ask(offices: PostOffices, latitude: float, longitude: float) -> Answers:
    """The nearest post office by every index, under the great-circle distance in km."""
    query = np.array([[latitude, longitude]])
    answers = [_ask_one(kind(), offices, query) for kind in INDEXES.values()]
    first = answers[0]
    return Answers(answers, all(a.row == first.row and abs(a.km - first.km) < 1e-6 for a in answers))


def _ask_one(recipe: Recipe, offices: PostOffices, query: np.ndarray) -> Answer:
    index = recipe.build(offices.points, metric=Haversine(degrees=True))
    index.nearest(query, 1)  # kernels are compiled before the clock starts
    start = time.perf_counter()
    found = index.nearest(query, 1)
    spent = time.perf_counter() - start
    row = int(found.ids[0, 0])
    return Answer(
        index=recipe.name,
        row=row,
        name=str(offices.names[row]),
        zip=str(offices.zips[row]),
        km=float(found.distances[0, 0]),
        touched=index.touched_,
        milliseconds=1e3 * spent,
    )
