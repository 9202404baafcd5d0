"""Post offices: US ZIP codes as points on earth, for the example that looks for the nearest.

    points (n, 2)   latitude and longitude in degrees
    names (n,)      "Hoboken, NJ"          zips (n,)   "07030"

30,000 of them are in the package; all 41,914 are read from $KWAY_DATA/us_zip_points.csv.gz where that exists.
"""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.data.datasets.catalog import folder

_EMBEDDED = Path(__file__).parent / "embedded" / "post_offices.npz"
_TABLE = "us_zip_points.csv.gz"


class PostOffices(NamedTuple):
    """Points (n, 2) in degrees, names and ZIP codes (n,)."""

    points: NDArray[np.float64]
    names: NDArray[np.str_]
    zips: NDArray[np.str_]


def post_offices() -> PostOffices:
    """All that are at hand.

    >>> len(post_offices().names) >= 30_000
    True
    """
    place = folder()
    return _from_table(place / _TABLE) if place is not None and (place / _TABLE).exists() else embedded()


def embedded() -> PostOffices:
    """The 30,000 in the package (MIT, of the package `zipcodes`; the notice lies beside the file)."""
    with np.load(_EMBEDDED) as kept:
        names = np.array(kept["names"].tobytes().decode().split("\n"))
        return PostOffices(kept["degrees_e4"] / 1e4, names, np.array([f"{z:05d}" for z in kept["zips"]]))


def _from_table(file: Path) -> PostOffices:
    with gzip.open(file, "rt", encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    points = np.array([[float(r["lat"]), float(r["lon"])] for r in rows])
    return PostOffices(
        points, np.array([f"{r['name']}, {r['state']}" for r in rows]), np.array([r["zip"] for r in rows])
    )
