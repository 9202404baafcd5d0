"""Make src/kway/tables/datasets/embedded/post_offices.npz: 30,000 US ZIP codes as points, drawn with a seed.

    python tools/make_post_offices.py us_zip_points.csv.gz

The table has the columns name, state, lat, lon, zip. The place nearest to the example's query is kept in any case.
Coordinates are stored as ten-thousandths of a degree (their own precision), names as one text.
"""

import csv
import gzip
import sys
from pathlib import Path

import numpy as np

OUT = Path(__file__).parents[1] / "src" / "kway" / "tables" / "datasets" / "embedded" / "post_offices.npz"
N = 30_000
QUERY = (40.74627, -74.02431)


def main(source: str) -> None:
    """Read the table, write the sample."""
    with gzip.open(source, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    points = np.array([[float(r["lat"]), float(r["lon"])] for r in rows])
    flat = (points - QUERY) * [1.0, np.cos(np.radians(QUERY[0]))]  # near the query the earth is flat
    nearest = int(np.square(flat).sum(axis=1).argmin())
    others = np.delete(np.arange(len(rows)), nearest)
    kept = np.sort(np.append(np.random.default_rng(0).choice(others, N - 1, replace=False), nearest))
    np.savez_compressed(
        OUT,
        degrees_e4=np.round(points[kept] * 1e4).astype(np.int32),
        zips=np.array([int(rows[i]["zip"]) for i in kept], dtype=np.int32),
        names=np.frombuffer("\n".join(f"{rows[i]['name']}, {rows[i]['state']}" for i in kept).encode(), np.uint8),
    )


if __name__ == "__main__":
    main(sys.argv[1])
