"""Histograms of oriented gradients (HOG) over a grid of cells, with trilinear interpolation."""

from __future__ import annotations

import numpy as np

from kway.kernels.jit import kernel


@kernel
def edge_histograms(images, out):
    """Add the gradients of images (n, height, width, channels) to out (n, rows, columns, bins), which must be zeros.

    The gradient of an inner pixel is that of the channel in which it is longest. Its length is distributed by linear
    interpolation over the two nearest orientation bins and the four nearest cells. Orientations are signed: from 0 to
    2 pi, with y pointing down as in the array. Model files depend on this convention.
    """
    n, height, width, channels = images.shape
    rows, columns, bins = out.shape[1:]
    for i in range(n):
        for y in range(1, height - 1):
            cell_y = (y + 0.5) * rows / height - 0.5  # in units of cells, from the center of the first cell
            first_row = int(np.floor(cell_y))
            for x in range(1, width - 1):
                gy_max = gx_max = square = np.float32(0.0)
                for c in range(channels):
                    gy = images[i, y + 1, x, c] - images[i, y - 1, x, c]
                    gx = images[i, y, x + 1, c] - images[i, y, x - 1, c]
                    if gx * gx + gy * gy > square:
                        gy_max, gx_max, square = gy, gx, gx * gx + gy * gy
                if square <= 0:
                    continue
                length = np.sqrt(square)
                orientation = (np.arctan2(gy_max, gx_max) / (2 * np.pi) + 1.0) * bins  # in units of bins
                first_bin = int(np.floor(orientation))
                bin_fraction = orientation - first_bin
                cell_x = (x + 0.5) * columns / width - 0.5
                first_column = int(np.floor(cell_x))
                for dy in range(2):
                    row = first_row + dy
                    if row < 0 or row >= rows:
                        continue
                    row_weight = length * (1.0 - abs(cell_y - row))
                    for dx in range(2):
                        column = first_column + dx
                        if 0 <= column < columns:
                            weight = row_weight * (1.0 - abs(cell_x - column))
                            out[i, row, column, first_bin % bins] += weight * (1.0 - bin_fraction)
                            out[i, row, column, (first_bin + 1) % bins] += weight * bin_fraction
