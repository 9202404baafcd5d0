"""Draw the pictures of the README and the lessons into docs/images.

    python tools/make_pictures.py                   all of them
    python tools/make_pictures.py losses folds      those of these names

Every picture is drawn from seeded data, so it is reproducible.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pictures import confidence, lessons, linear, neighbors, steps
from PIL import Image

from kway import report

IMAGES = Path(__file__).parents[1] / "docs" / "images"
COLORS = 128  # of a PNG, which halves the file; flat regions and gray images need no more

PICTURES: dict[str, Callable[[], Any]] = {  # file below docs/images: function that draws it
    "regions.png": neighbors.regions,
    "lessons/outliers.svg": linear.outliers,
    "lessons/softmax-sigmoid.svg": linear.softmax_and_sigmoid,
    "lessons/losses.svg": lessons.losses_by_margin,
    "lessons/updates.svg": lessons.updates_by_margin,
    "lessons/margin.svg": linear.margin,
    "lessons/balls.svg": linear.balls,
    "lessons/alpha.svg": linear.alpha,
    "lessons/templates-l2.png": linear.templates_l2,
    "lessons/templates-l1.png": linear.templates_l1,
    "lessons/batches.svg": steps.batches,
    "lessons/schedules.svg": steps.schedules,
    "lessons/separable.svg": steps.separable,
    "lessons/voters.png": neighbors.voters,
    "lessons/same-distance.png": neighbors.same_distance,
    "lessons/folds.svg": neighbors.folds,
    "lessons/cells.png": neighbors.cells,
    "lessons/boxes.png": neighbors.boxes,
    "lessons/buckets.png": neighbors.buckets,
    "lessons/kernels-trees.png": neighbors.kernels_and_trees,
    "lessons/transfer.png": neighbors.transferred,
    "lessons/temperature.svg": confidence.temperature,
    "lessons/reliability.svg": confidence.reliability,
    "lessons/smoothing.svg": confidence.smoothing,
    "lessons/many-classes.svg": confidence.many_classes,
}


def draw(name: str, folder: Path = IMAGES) -> Path:
    """Draw one picture of the table into its file below `folder`."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    report.save(PICTURES[name](), path)
    if path.suffix == ".png":
        _few_colors(path)
    return path


def _few_colors(path: Path) -> None:
    out = io.BytesIO()
    with Image.open(path) as image:
        image.convert("RGB").quantize(COLORS).save(out, "png", optimize=True)
    path.write_bytes(out.getvalue())


def main(wanted: Sequence[str]) -> None:
    """Draw the pictures with these names (without folder and extension), or all pictures."""
    known = {Path(name).stem for name in PICTURES}
    if unknown := sorted(set(wanted) - known):
        sys.exit(f"no picture is called {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    for name in PICTURES:
        if not wanted or Path(name).stem in wanted:
            print(draw(name))


if __name__ == "__main__":
    main(sys.argv[1:])
