"""Passes of a linear model over rows on the nodes of a cluster; each node has a slice of the rows.

    sum over all rows = sum over the nodes of the sums over their rows

Each node returns sums over its rows, of losses, gradients and products with the Hessian. They are added in the order of
the nodes. The solver runs in this process. A worker that dies is started again and repeats the current pass. Everything
else is computed from the rows of this process, which are all rows, or a sample if the nodes read a folder.

The rows save theta in the folder of the cluster with each gradient (`SavedTheta`), so that the same fit, called again
after an interruption, starts there. Any theta is a valid start, so the name of the file only has to distinguish fits:
it is a digest of the settings, the shape of the rows and a sample of their values.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.errors import InputError
from kway.memory import CACHE_BYTES
from kway.rows.cluster.session import n_nodes, shared_folder
from kway.rows.cluster.shards import Carried, FilePlace, Shards, make_shards, row_source
from kway.rows.passes import (
    DISTINCT,
    QUICK,
    HessianSums,
    RowLoss,
    RowLosses,
    RowPasses,
    Sums,
    Targets,
    wrap_rows,
)


@dataclass
class RowShard:
    """The rows of one node, with their targets and weights."""

    rows: RowPasses
    targets: Targets
    weight: NDArray | None
    last: tuple[NDArray, HessianSums] | None = None  # a theta and the Hessian at it, kept for further products

    def value(self, loss: RowLoss, theta: NDArray) -> float:
        """Return the sum of the losses."""
        return self.rows.value(theta, self._losses(loss))

    def sums(self, loss: RowLoss, theta: NDArray) -> Sums:
        """Return the sums of losses and gradients."""
        return self.rows.value_gradient(theta, self._losses(loss))

    def gram(self, bias: bool, dtype: np.dtype) -> NDArray:
        """Return n times the Gram matrix of the rows."""
        return self.rows.gram(self.weight, bias, dtype) * dtype.type(self.rows.n)

    def squares(self) -> NDArray:
        """Return the weighted sum of the squares of each feature, (1, d)."""
        return self.rows.squares(None if self.weight is None else self.weight[None, :])

    def hessian_product(self, loss: RowLoss, theta: NDArray, V: NDArray) -> NDArray:
        """Return the product of the Hessian at theta with V."""
        if self.last is None or not np.array_equal(self.last[0], theta):
            self.last = np.array(theta), self.rows.hessian_at(theta, self._losses(loss))
        return self.last[1].product(V)

    def sample(self, share: float) -> tuple[Any, NDArray]:
        """Draw a share of the rows with their codes, the same rows at every call."""
        n = self.rows.n
        rows = np.sort(np.random.default_rng(n).choice(n, math.ceil(share * n), replace=False))
        return self.rows.X[rows], self.targets.codes[rows]

    def _losses(self, loss: RowLoss) -> RowLosses:
        return RowLosses(loss, self.targets, self.weight)


def open_row_shard(source: FilePlace | Carried, targets: Targets, weight: NDArray | None) -> RowShard:
    """Build a shard; called on its node."""
    return RowShard(wrap_rows(source.rows()), targets, weight)


@dataclass(eq=False)
class ClusterRows:
    """Rows on the nodes of a cluster. `local` are the rows of this process: all n, or a sample of them.

    Shards that this class builds get the targets and weights of the first pass; shards of a folder have their own.
    """

    local: RowPasses
    n: int = 0  # number of rows; 0 means that `local` has all rows
    shards: Shards | None = None
    on_theta: Callable[[NDArray], None] | None = None  # called with the theta of each gradient
    _codes: NDArray | None = field(default=None, repr=False)  # the codes that the shards were built with

    def __post_init__(self) -> None:
        self.local = wrap_rows(self.local)
        self.n = self.n or self.local.n

    @property
    def sampled(self) -> bool:
        """Whether this process has only a sample of the rows."""
        return self.n != self.local.n

    @property
    def offers(self) -> frozenset[str]:
        """Capabilities: those of the rows of this process, if these are all rows."""
        return frozenset({QUICK}) if self.sampled else self.local.offers - {DISTINCT}

    @property
    def max_rows_in_memory(self) -> int:
        """Number of rows of this process."""
        return self.local.n

    def take(self, chosen: NDArray | slice) -> RowPasses:
        """Return the chosen rows, in this process."""
        if self.sampled:
            raise InputError(
                "this fit needs single rows, but the rows of a folder are on the nodes of the cluster; "
                "read them with kway.fit, or fit without kway.cluster"
            )
        return self.local.take(chosen)

    def sample(self) -> RowPasses:
        """Return the sample if this process has one, else these rows."""
        return self.local if self.sampled else self

    def close(self) -> None:
        """Release the nodes."""
        if self.shards is not None:
            self.shards.close()

    # ---- sums over the shards

    def value(self, theta: NDArray, losses: RowLosses) -> float:
        """Return the sum of the weighted losses."""
        return float(sum(self._shards_with(losses).ask("value", losses.loss, theta)))

    def value_gradient(self, theta: NDArray, losses: RowLosses) -> Sums:
        """Return the sums of the weighted losses and of their gradients."""
        if self.on_theta is not None:
            self.on_theta(theta)
        parts = self._shards_with(losses).ask("sums", losses.loss, theta)
        gradient = np.array(parts[0].gradient, order="K")  # what Ray returns is read-only
        for part in parts[1:]:
            gradient += part.gradient
        return Sums(sum(part.value for part in parts), gradient)

    def hessian_at(self, theta: NDArray, losses: RowLosses) -> ShardHessian:
        """Return the operator that multiplies with the Hessian at theta."""
        return ShardHessian(self._shards_with(losses), losses.loss, theta)

    def gram(self, weight: NDArray | None, bias: bool, dtype: np.dtype) -> NDArray:
        """Return [X 1]' diag(weight) [X 1] / n (D, D), in Fortran order."""
        if not self.sampled:
            return self.local.gram(weight, bias, dtype)
        assert self.shards is not None
        return np.asfortranarray(np.sum(self.shards.ask("gram", bias, dtype), axis=0) / dtype.type(self.n))

    def squares(self, h: NDArray | None) -> NDArray:
        """Return sum_i h_ki x_ij^2 (R, d); for rows of a folder return sum_i w_i x_ij^2 (1, d), whatever h is."""
        if not self.sampled:
            return self.local.squares(h)
        assert self.shards is not None
        return np.asarray(np.sum(self.shards.ask("squares"), axis=0))

    def _shards_with(self, losses: RowLosses) -> Shards:
        codes = losses.targets.codes
        if self.shards is None or not (self.sampled or self._codes is codes):
            self.shards, self._codes = make_shards(_makers(self.local.X, losses.targets, losses.weight)), codes
        return self.shards

    def __getattr__(self, name: str) -> Any:
        """Forward to the rows of this process what is no sum over all rows, such as `scores` or `keys`."""
        if name == "local":  # not set yet
            raise AttributeError(name)
        return getattr(self.local, name)


def _makers(X: Any, targets: Targets, weight: NDArray | None) -> list[Callable[[], RowShard]]:
    """Return one function per node, which builds the shard of that node."""
    n = X.shape[0]
    nodes = max(1, min(n_nodes(), n))
    edges = [n * s // nodes for s in range(nodes + 1)]
    return [
        partial(open_row_shard, row_source(X, run), targets.of(run), None if weight is None else weight[run])
        for run in itertools.starmap(slice, itertools.pairwise(edges))
    ]


@dataclass
class ShardHessian:
    """Products with the Hessian, summed over the shards; each call sends theta, because a shard may have restarted."""

    shards: Shards
    loss: RowLoss
    theta: NDArray

    def product(self, V: NDArray) -> NDArray:
        """Return sum_i w_i (B_i f(V)_i) [x_i 1], (R, d + 1)."""
        return np.asarray(np.sum(self.shards.ask("hessian_product", self.loss, self.theta, V), axis=0))


# ---- the last theta of an interrupted fit


@dataclass(frozen=True)
class SavedTheta:
    """A file with a theta; it is complete or absent."""

    file: Path

    def load(self) -> NDArray | None:
        """Return the saved theta; None if there is none that can be read."""
        try:
            with self.file.open("rb") as file:
                return np.asarray(np.load(file, allow_pickle=False))
        except (OSError, ValueError, EOFError):
            return None

    def save(self, theta: NDArray) -> None:
        """Replace the file."""
        draft = self.file.with_suffix(f".{os.getpid()}.draft")
        with draft.open("wb") as out:
            np.save(out, theta)
        draft.replace(self.file)

    def forget(self) -> None:
        """Remove the file, because the fit is done."""
        self.file.unlink(missing_ok=True)


def saved_theta(*about: Any) -> SavedTheta | None:
    """Return the file of the fit with these settings and arrays; None if the cluster has no folder."""
    home = shared_folder()
    return None if home is None else SavedTheta(home / f"fit-{fingerprint(*about)[:16]}.npy")


def fingerprint(*about: Any) -> str:
    """Return a digest of settings and arrays; of a long array it reads evenly spaced rows."""
    digest = hashlib.sha256()
    for value in about:
        content = value.data if sp.issparse(value) else value
        if isinstance(content, np.ndarray):
            digest.update(repr(content.shape).encode())
            digest.update(np.ascontiguousarray(content[:: max(1, content.nbytes // CACHE_BYTES)]).tobytes())
        else:
            digest.update(repr(content).encode())
    return digest.hexdigest()
