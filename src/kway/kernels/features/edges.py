"""Histograms of edge directions: images (n, h, w, c) -> (n, cells, cells, bins)."""

from __future__ import annotations

import numpy as np

from kway.kernels.jit import kernel


@kernel
def edge_histograms(images, out):
    """Add the gradient length of every inner pixel to the bin of its direction in out (n, cells, cells, bins).

    The channel with the longest gradient counts. A pixel is divided among the two nearest directions and the four
    nearest cells, in proportion.
    """
    n, h, w, channels = images.shape
    rows, columns, bins = out.shape[1:]
    for i in range(n):
        for y in range(1, h - 1):
            at_y = (y + 0.5) * rows / h - 0.5
            top = int(np.floor(at_y))
            for x in range(1, w - 1):
                up = across = longest = np.float32(0.0)
                for c in range(channels):
                    gy = images[i, y + 1, x, c] - images[i, y - 1, x, c]
                    gx = images[i, y, x + 1, c] - images[i, y, x - 1, c]
                    if gx * gx + gy * gy > longest:
                        up, across, longest = gy, gx, gx * gx + gy * gy
                if longest <= 0:
                    continue
                length = np.sqrt(longest)
                turn = (np.arctan2(up, across) / (2 * np.pi) + 1.0) * bins
                low = int(np.floor(turn))
                beyond = turn - low
                at_x = (x + 0.5) * columns / w - 0.5
                left = int(np.floor(at_x))
                for dy in range(2):
                    r = top + dy
                    if r < 0 or r >= rows:
                        continue
                    by_row = length * (1.0 - abs(at_y - r))
                    for dx in range(2):
                        k = left + dx
                        if 0 <= k < columns:
                            share = by_row * (1.0 - abs(at_x - k))
                            out[i, r, k, low % bins] += share * (1.0 - beyond)
                            out[i, r, k, (low + 1) % bins] += share * beyond
