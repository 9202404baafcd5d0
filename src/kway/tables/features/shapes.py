"""Shapes: what is seen in small images instead of their pixels, learned from the images alone, nothing downloaded.

    edges     18 directions in up to 8 x 8 cells, each cell compared with its neighbors (histograms of gradients)
    patches   6 x 6 pixels, contrast evened and whitened, against 128 that k-means found among the training images;
              how strongly each is met, for and against, averaged over the quarters of the image (Coates and Ng, 2011)

Columns are standardized. Test rows of five classes of CIFAR (1,250 images): 0.52 by softmax on pixels, 0.71 by least
squares on shapes; Fashion (3,000): 0.83, 0.88; Yale faces: 0.96, 0.99; penalties chosen by cross-validation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from kway.tables.sources.images import SIDE, ImageForm
from kway.threads import pmap, single_blas, spans

BINS = 18  # directions of an edge
_CELLS = 8  # of edges, at most, along a side
_PATCH = 6  # pixels along a side of a patch
_STEP = _PATCH // 3  # pixels between patches; a step of 1 was no better on CIFAR and four times as slow
_FILTERS = 128  # that k-means finds; 200 and 800 were within half a point of it on CIFAR
LEAST_SIDE = _PATCH + _STEP  # of an image, so that each quarter has a patch
_SAMPLED = 20_000  # patches that filters are learned from
_EVEN = 10 / 255**2  # added to the variance of a patch: what has no contrast stays small
_WHITEN = 0.1  # added to the eigenvalues of the patches: directions of noise are not blown up
_MUTE = 0.25  # a filter has to answer more strongly than this: weaker answers are noise
_AT_ONCE = 64  # images that a worker takes at a time
_FAINT = 0.01  # of the mean spread is added to each: columns that hardly vary do not count as others do


@dataclass(frozen=True, eq=False)
class Shapes:
    """form (height, width, channels); values are divided by top; filters (p, k) over evened patches, offset (k,);
    mean and spread (m,) of the columns."""

    form: tuple[int, int, int]
    top: float
    filters: NDArray[np.float32]
    offset: NDArray[np.float32]
    mean: NDArray[np.float32]
    spread: NDArray[np.float32]

    def apply(self, X: NDArray) -> NDArray[np.float32]:
        """Pixels (n, d) -> (n, m)."""
        return (self.raw(X) - self.mean) / self.spread

    def raw(self, X: NDArray) -> NDArray[np.float32]:
        """Edges and patches before columns are standardized."""
        parts = pmap(lambda some: self._block(X[some]), spans(len(X), _AT_ONCE))
        return np.concatenate(parts) if parts else np.zeros((0, len(self.mean)), np.float32)

    def _block(self, X: NDArray) -> NDArray[np.float32]:
        images = as_images(X, self.form, self.top)
        return np.hstack([edges(images), self._patches(images)])

    def _patches(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Answers of the filters, for and against, averaged over the quarters: (n, 8 k)."""
        found = evened(windows(images))  # (n, rows, columns, p)
        answers = found @ self.filters - self.offset  # (n, rows, columns, k)
        rows, columns = (np.array_split(np.arange(size), 2) for size in answers.shape[1:3])
        quarters = []
        for r in rows:
            for c in columns:
                part = answers[:, r[0] : r[-1] + 1, c[0] : c[-1] + 1]
                quarters += [np.maximum(part - _MUTE, 0).mean(axis=(1, 2)), np.maximum(-part - _MUTE, 0).mean((1, 2))]
        return np.hstack(quarters)

    @property
    def made(self) -> tuple[str, ...]:
        """Names of the columns that come out."""
        n_patches = 8 * self.filters.shape[1]
        seen = [f"edges {j}" for j in range(len(self.mean) - n_patches)]
        return (*seen, *(f"patches {j}" for j in range(n_patches)))


def patch_values(form: tuple[int, int, int]) -> int:
    """Values of a patch of such images."""
    return _PATCH * _PATCH * form[2]


def shape_columns(form: tuple[int, int, int], n_filters: int) -> int:
    """Columns that such images make: edges in cells, and filters for and against in four quarters."""
    by = max(1, min(form[:2]) // SIDE)
    return int(np.prod([_cells(side // by) for side in form[:2]])) * BINS + 8 * n_filters


def _cells(side: int) -> int:
    return max(2, min(_CELLS, side // 4))


def can_have_shapes(X: Any, form: ImageForm | None) -> bool:
    """Whether rows are images large enough to have any, without gaps."""
    if form is None or not isinstance(X, np.ndarray) or min(form.height, form.width) < LEAST_SIDE:
        return False
    return bool(X.dtype.kind in "ub" or np.isfinite(np.sum(X, dtype=np.float64)))


def likely_form(X: Any) -> ImageForm | None:
    """The form of rows of bytes (n, d) that can be square images: grey, or RGB pixel by pixel; None where they cannot.

    Of colours, the next value of the same one is 3 away; where the next value is nearer they lie plane by plane.
    """
    if not isinstance(X, np.ndarray) or X.dtype != np.uint8 or X.ndim != 2:
        return None
    d, some = X.shape[1], X[:500].astype(np.int16)
    side = math.isqrt(d)
    if side * side == d:
        return ImageForm(side, side, 1)
    side = math.isqrt(d // 3)
    if 3 * side * side != d or np.abs(some[:, 3:] - some[:, :-3]).mean() >= np.abs(np.diff(some, axis=1)).mean():
        return None
    return ImageForm(side, side, 3)


def learn_shapes(X: NDArray, form: ImageForm, seed: int = 0) -> Shapes:
    """From training images (n, d)."""
    largest = float(np.abs(X).max()) or 1.0
    top = 255.0 if X.dtype == np.uint8 and largest > 127 else largest
    size = (form.height, form.width, form.channels)
    with single_blas():
        filters, offset = _learn_filters(X, size, top, seed)
    nothing = np.zeros(0, np.float32)
    plain = Shapes(size, top, filters, offset, nothing, nothing)
    some = plain.raw(X[:: max(1, len(X) // 2000)])
    spread = some.std(axis=0)
    spread += _FAINT * spread.mean() + np.float32(1e-6)
    return Shapes(size, top, filters, offset, some.mean(axis=0), spread)


def as_images(X: NDArray, form: tuple[int, int, int], top: float) -> NDArray[np.float32]:
    """Rows (n, d) as images (n, h, w, c) of about 0 to 1, large ones averaged down."""
    images = (X.reshape(-1, *form) / np.float32(top)).astype(np.float32)
    by = max(1, min(form[:2]) // SIDE)
    if by == 1:
        return np.ascontiguousarray(images)
    h, w = form[0] // by, form[1] // by
    cut = images[:, : h * by, : w * by].reshape(-1, h, by, w, by, form[2])
    return np.ascontiguousarray(cut.mean(axis=(2, 4)))


def edges(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Histograms of edge directions (n, cells * cells * BINS), each cell against the four 2 x 2 blocks it is in."""
    from kway.kernels.features.edges import edge_histograms

    n, h, w, _ = images.shape
    rows, columns = _cells(h), _cells(w)
    found = np.zeros((n, rows, columns, BINS), np.float32)
    edge_histograms(images, found)
    either = found[..., : BINS // 2] + found[..., BINS // 2 :]  # light to dark as dark to light
    energy = np.pad((either**2).sum(axis=3), ((0, 0), (1, 1), (1, 1)), mode="edge")
    pairs = energy[:, 1:] + energy[:, :-1]
    blocks = pairs[:, :, 1:] + pairs[:, :, :-1]  # (n, rows + 1, columns + 1)
    corners = [blocks[:, y : y + rows, x : x + columns] for y in (0, 1) for x in (0, 1)]
    held = sum(np.minimum(0.2, found / np.sqrt(corner + 1e-2)[..., None]) for corner in corners)
    return (np.asarray(held).reshape(n, -1) / 4).astype(np.float32)


def windows(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Patches (n, rows, columns, p) of images (n, h, w, c)."""
    found = sliding_window_view(images, (_PATCH, _PATCH), axis=(1, 2))[:, ::_STEP, ::_STEP]
    return found.reshape(*found.shape[:3], -1)


def evened(patches: NDArray[np.float32]) -> NDArray[np.float32]:
    """Mean 0 and about the same contrast."""
    out = patches - patches.mean(axis=-1, keepdims=True)
    out /= np.sqrt(np.square(out).mean(axis=-1, keepdims=True) + np.float32(_EVEN))
    return out


def _learn_filters(
    X: NDArray, form: tuple[int, int, int], top: float, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Directions that k-means finds among whitened patches, as filters (p, k) of evened ones, with offsets (k,)."""
    from sklearn.cluster import MiniBatchKMeans

    rng = np.random.default_rng(seed)
    some = windows(as_images(X[rng.permutation(len(X))[:1000]], form, top))
    patches = evened(some.reshape(-1, some.shape[-1]))
    patches = patches[rng.permutation(len(patches))[:_SAMPLED]]
    mean = patches.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov((patches - mean).T.astype(np.float64)))
    whiten = ((vectors / np.sqrt(np.maximum(values, 0) + _WHITEN)) @ vectors.T).astype(np.float32)  # (p, p)
    Z = (patches - mean) @ whiten
    D = MiniBatchKMeans(min(_FILTERS, len(Z)), n_init=1, random_state=seed).fit(Z).cluster_centers_
    D = (D / np.maximum(np.linalg.norm(D, axis=1, keepdims=True), 1e-6)).astype(np.float32)
    filters = np.ascontiguousarray(whiten @ D.T)
    return filters, (mean @ filters).astype(np.float32)
