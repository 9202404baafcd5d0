"""Find the nearest post office with every index.

    python examples/post_office.py [--lat 37.77 --lon=-122.42] [--map post_office.png]

The package contains 30,000 places. For each index, the script prints the nearest place by great-circle distance, the
distance, the number of places whose distance was computed, and the time.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kway
from kway.search import LSH, Flat, KDTree, Landmarks, Sharded

HOBOKEN = (40.74627, -74.02431)  # on the Hudson, between New Jersey and Manhattan
RECIPES = (Flat(), Landmarks(), KDTree(), LSH(), Sharded())


@dataclass(frozen=True)
class Answer:
    """The result of one index, with the number of distances that it computed and its time."""

    index: str
    row: int
    km: float
    touched: float
    milliseconds: float


def ask(points: Any, latitude: float, longitude: float) -> list[Answer]:
    """Return the nearest of the points (n, 2), in degrees, according to every index."""
    return [_ask_one(recipe, points, [[latitude, longitude]]) for recipe in RECIPES]


def agree(answers: list[Answer]) -> bool:
    """Return whether all indexes found the same place at the same distance."""
    first = answers[0]
    return all(a.row == first.row and abs(a.km - first.km) < 1e-6 for a in answers)


def _ask_one(recipe: Any, points: Any, query: Any) -> Answer:
    index = recipe.build(points, metric=kway.Haversine(degrees=True))
    index.nearest(query, 1)  # compiles the kernels before the time is measured
    start = time.perf_counter()
    found = index.nearest(query, 1)
    spent = time.perf_counter() - start
    return Answer(recipe.name, int(found.ids[0, 0]), float(found.distances[0, 0]), index.touched_, 1e3 * spent)


def main() -> None:
    """Search, print the results, and draw the map if --map is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lat", type=float, default=HOBOKEN[0], help="latitude in degrees")
    parser.add_argument("--lon", type=float, default=HOBOKEN[1], help="longitude in degrees")
    parser.add_argument("--map", help="file for the map, such as post_office.png")
    options = parser.parse_args()
    offices = kway.datasets.load("post-offices")
    answers = ask(offices.x_train, options.lat, options.lon)
    for a in answers:
        place = f"{offices.extras['names'][a.row]} {offices.extras['zips'][a.row]}"
        print(f"{a.index:10} {place}  {a.km:.3f} km  {a.touched:6,.0f} distances computed  {a.milliseconds:.2f} ms")
    print("all agree" if agree(answers) else "the indexes do not agree; flat is exact")
    if options.map:
        sys.path.append(str(Path(__file__).parents[1] / "tools"))
        from pictures.maps import landmark_cells

        landmark_cells(offices.x_train, query=(options.lat, options.lon)).savefig(options.map, dpi=110)


if __name__ == "__main__":
    main()
