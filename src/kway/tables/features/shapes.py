"""Shapes: edges and patches of small images instead of their pixels, learned from the training images alone.

    edges     histograms of oriented gradients (HOG): 18 directions in up to 8 x 8 cells, normalized by the cells around
    patches   6 x 6 pixels, normalized and whitened, compared with 128 filters that k-means finds among the patches of
              the training images; the positive and negative responses are averaged over the quarters of the image

Columns are standardized. Test accuracy with softmax on pixels and least squares on shapes, penalties chosen by
cross-validation: five classes of CIFAR (1,250 images) 0.52 and 0.71, Fashion (3,000) 0.83 and 0.88, Yale faces 0.96 and
0.99.

References
----------
N. Dalal and B. Triggs, "Histograms of oriented gradients for human detection", CVPR 2005.
A. Coates and A. Ng, "The importance of encoding versus training with sparse coding and vector quantization", ICML 2011.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from kway.memory import BLOCK_BYTES, rows_per_block
from kway.tables.sources.images import SIDE, ImageForm
from kway.threads import pmap, single_blas, spans

BINS = 18  # directions of an edge, as in histograms of oriented gradients
_PATCH = 6  # pixels along a side of a patch, as in Coates and Ng
_STEP = _PATCH // 3  # pixels between patches; a step of 1 was no better on CIFAR and four times as slow
_FILTERS = 128  # filters; 200 and 800 were within half a point on CIFAR
LEAST_SIDE = _PATCH + _STEP  # smallest side of an image in pixels, so that each quarter has a patch
_CONTRAST = 10 / 255**2  # added to the variance of a patch, so that patches without contrast stay small (Coates and Ng)
_WHITEN = 0.1  # added to the eigenvalues of the patches, so that noise is not amplified (Coates and Ng)
_THRESHOLD = 0.25  # smallest response of a filter that counts (Coates and Ng)


@dataclass(frozen=True, eq=False)
class Shapes:
    """Edges and patches of images of one form.

    Attributes
    ----------
    form : tuple (height, width, channels)
        Form of the images.
    top : float
        Largest value of a pixel; values are divided by it.
    filters, offset : ndarray of shape (p, k) and (k,)
        The responses to a normalized patch (p,) are patch @ filters - offset.
    mean, spread : ndarray of shape (m,)
        They standardize the output columns.
    """

    form: tuple[int, int, int]
    top: float
    filters: NDArray[np.float32]
    offset: NDArray[np.float32]
    mean: NDArray[np.float32]
    spread: NDArray[np.float32]

    def apply(self, X: NDArray) -> NDArray[np.float32]:
        """Return the columns (n, m) of images (n, d)."""
        return (self.raw(X) - self.mean) / self.spread

    def raw(self, X: NDArray) -> NDArray[np.float32]:
        """Return edges and patches before columns are standardized."""
        blocks = spans(len(X), _images_per_block(self.form, BLOCK_BYTES // 4))
        parts = pmap(lambda rows: self._block(X[rows]), blocks)
        return np.concatenate(parts) if parts else np.zeros((0, len(self.mean)), np.float32)

    def _block(self, X: NDArray) -> NDArray[np.float32]:
        images = as_images(X, self.form, self.top)
        return np.hstack([edges(images), self._patches(images)])

    def _patches(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return positive and negative responses of the filters, averaged over the quarters: (n, 8 k)."""
        patches = normalized(windows(images))  # (n, rows, columns, p)
        responses = patches @ self.filters - self.offset  # (n, rows, columns, k)
        rows, columns = (np.array_split(np.arange(size), 2) for size in responses.shape[1:3])
        quarters = []
        for r in rows:
            for c in columns:
                part = responses[:, r[0] : r[-1] + 1, c[0] : c[-1] + 1]
                quarters += [np.maximum(sign * part - _THRESHOLD, 0).mean(axis=(1, 2)) for sign in (1, -1)]
        return np.hstack(quarters)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the columns of the result."""
        n_patches = 8 * self.filters.shape[1]
        edge_names = [f"edges {j}" for j in range(len(self.mean) - n_patches)]
        return (*edge_names, *(f"patches {j}" for j in range(n_patches)))


def patch_values(form: tuple[int, int, int]) -> int:
    """Return the number of values of a patch."""
    return _PATCH * _PATCH * form[2]


def shape_columns(form: tuple[int, int, int], n_filters: int) -> int:
    """Return the number of columns: edges in cells, and two responses per filter in four quarters."""
    reduction = max(1, min(form[:2]) // SIDE)  # as in `as_images`
    return int(np.prod([_cells(side // reduction) for side in form[:2]])) * BINS + 8 * n_filters


def _cells(side: int) -> int:
    """Return the number of cells along a side: one per four pixels, and at most as many as for SIDE pixels."""
    return max(2, min(SIDE, side) // 4)


def _images_per_block(form: tuple[int, int, int], block_bytes: int = BLOCK_BYTES) -> int:
    """Return the number of images whose patches and responses fit into a block of memory."""
    windows = math.prod(min(side, 2 * SIDE) // _STEP for side in form[:2])
    return rows_per_block(4 * windows * (patch_values(form) + _FILTERS), block_bytes)


def can_have_shapes(X: Any, form: ImageForm | None) -> bool:
    """Return whether rows are images of sufficient size without missing values."""
    if form is None or not isinstance(X, np.ndarray) or min(form.height, form.width) < LEAST_SIDE:
        return False
    return bool(X.dtype.kind in "ub" or np.isfinite(np.sum(X, dtype=np.float64)))


def likely_form(X: Any) -> ImageForm | None:
    """Return the form of rows of bytes (n, d) that can be square images, gray or RGB; None for other rows.

    If neighboring values differ less than values at a distance of 3, the colors are not stored pixel by pixel but plane
    by plane, which is not supported.
    """
    if not isinstance(X, np.ndarray) or X.dtype != np.uint8 or X.ndim != 2:
        return None
    d, sample = X.shape[1], X[:500].astype(np.int16)
    side = math.isqrt(d)
    if side * side == d:
        return ImageForm(side, side, 1)
    side = math.isqrt(d // 3)
    if 3 * side * side != d or np.abs(sample[:, 3:] - sample[:, :-3]).mean() >= np.abs(np.diff(sample, axis=1)).mean():
        return None
    return ImageForm(side, side, 3)


def learn_shapes(X: NDArray, form: ImageForm, seed: int = 0) -> Shapes:
    """Learn from training images (n, d)."""
    largest = float(np.abs(X).max()) or 1.0
    top = 255.0 if X.dtype == np.uint8 and largest > 127 else largest
    size = (form.height, form.width, form.channels)
    with single_blas():
        filters, offset = _learn_filters(X, size, top, seed)
    empty = np.zeros(0, np.float32)
    unscaled = Shapes(size, top, filters, offset, empty, empty)
    sample = unscaled.raw(X[:: max(1, len(X) // _images_per_block(size))])
    spread = sample.std(axis=0) + np.float32(1e-6)  # constant columns become 0
    return Shapes(size, top, filters, offset, sample.mean(axis=0), spread)


def as_images(X: NDArray, form: tuple[int, int, int], top: float) -> NDArray[np.float32]:
    """Return rows (n, d) as images (n, h, w, c) with values up to about 1; large images are reduced by averaging."""
    images = (X.reshape(-1, *form) / np.float32(top)).astype(np.float32)
    r = max(1, min(form[:2]) // SIDE)
    if r == 1:
        return np.ascontiguousarray(images)
    h, w = form[0] // r, form[1] // r
    tiles = images[:, : h * r, : w * r].reshape(-1, h, r, w, r, form[2])
    return np.ascontiguousarray(tiles.mean(axis=(2, 4)))


def edges(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the HOG (n, cells * cells * BINS), each cell normalized by the energies of the four blocks around it."""
    from kway.kernels.features.edges import edge_histograms

    n, h, w, _ = images.shape
    rows, columns = _cells(h), _cells(w)
    histograms = np.zeros((n, rows, columns, BINS), np.float32)
    edge_histograms(images, histograms)
    unsigned = histograms[..., : BINS // 2] + histograms[..., BINS // 2 :]  # both signs of a direction together
    energy = np.pad((unsigned**2).sum(axis=3), ((0, 0), (1, 1), (1, 1)), mode="edge")
    pairs = energy[:, 1:] + energy[:, :-1]
    blocks = pairs[:, :, 1:] + pairs[:, :, :-1]  # (n, rows + 1, columns + 1)
    corners = [blocks[:, y : y + rows, x : x + columns] for y in (0, 1) for x in (0, 1)]
    normed = sum(np.minimum(0.2, histograms / np.sqrt(corner + 1e-2)[..., None]) for corner in corners)
    return (np.asarray(normed).reshape(n, -1) / 4).astype(np.float32)


def windows(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the patches (n, rows, columns, p) of images (n, h, w, c)."""
    patches = sliding_window_view(images, (_PATCH, _PATCH), axis=(1, 2))[:, ::_STEP, ::_STEP]
    return patches.reshape(*patches.shape[:3], -1)


def normalized(patches: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return patches with mean 0 and similar contrast."""
    out = patches - patches.mean(axis=-1, keepdims=True)
    out /= np.sqrt(np.square(out).mean(axis=-1, keepdims=True) + np.float32(_CONTRAST))
    return out


def _learn_filters(
    X: NDArray, form: tuple[int, int, int], top: float, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the directions that k-means finds among whitened patches, as filters (p, k) with offsets (k,)."""
    from sklearn.cluster import MiniBatchKMeans

    rng = np.random.default_rng(seed)
    sample = X[rng.permutation(len(X))[: _images_per_block(form)]]
    patches = normalized(windows(as_images(sample, form, top)).reshape(-1, patch_values(form)))
    mean = patches.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov((patches - mean).T.astype(np.float64)))
    whiten = ((vectors / np.sqrt(np.maximum(values, 0) + _WHITEN)) @ vectors.T).astype(np.float32)  # (p, p)
    Z = (patches - mean) @ whiten
    D = MiniBatchKMeans(min(_FILTERS, len(Z)), n_init=1, random_state=seed).fit(Z).cluster_centers_
    D = (D / np.maximum(np.linalg.norm(D, axis=1, keepdims=True), 1e-6)).astype(np.float32)
    filters = np.ascontiguousarray(whiten @ D.T)
    return filters, (mean @ filters).astype(np.float32)
