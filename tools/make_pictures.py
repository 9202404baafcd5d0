"""Draw the pictures of the README into docs/images: python tools/make_pictures.py"""

from __future__ import annotations

from pathlib import Path

import kway
from kway.report import figures

IMAGES = Path(__file__).parents[1] / "docs" / "images"


def main() -> None:
    """Regions of k = 1, 3, 15 neighbours under L2 and L1 on three overlapping classes."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    data = kway.datasets.overlapping(300, n_classes=3, seed=4)
    figures.save(figures.neighbor_regions(data.x_train, data.y_train), IMAGES / "regions.png")


if __name__ == "__main__":
    main()
