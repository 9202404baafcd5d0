"""The interface between linear solvers and rows X (n, d), which may be in memory, in files, on a GPU or a cluster.

    F(theta) = alpha R(W) + mean_i w_i loss(f_i, y_i),   f = X W' + b,   theta = [W b] (R, d + 1)

A `RowPasses` object computes the sums of this objective over all rows. The objective (linear/objective.py) divides them
by n and adds the penalty. Each pass receives `RowLosses`: the loss, the targets and the weights of all rows.
`wrap_rows` selects the implementation from the type of X. `BlockRows` (rows/dense.py) documents the methods.

    n rows, d features, m rows of a block, R scores (1 for two classes, else K), D columns: d, or d + 1 with the bias

Every implementation has all methods of `BlockRows`, except that `keys`, `equal`, `units` and `scale_columns` need the
capability DISTINCT. `offers` lists the capabilities; solvers ask for them before they use what depends on them. No
method changes X.

    rows/dense.py            an array in memory: a fused kernel, or BLAS a block at a time
    rows/sparse.py           a CSR matrix in memory
    rows/files.py            rows in memory-mapped files, dense or CSR, read in blocks
    rows/gpu/linear_passes.py       rows on a GPU
    rows/cluster/linear_passes.py   rows on the nodes of a cluster
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.rows.gpu.tensor_rows import TensorRows

if TYPE_CHECKING:  # these modules load numba, ray and torch
    from kway.rows.cluster.linear_passes import ClusterRows
    from kway.rows.dense import BlockRows
    from kway.rows.gpu.linear_passes import GpuRows

RowPasses: TypeAlias = "BlockRows | ClusterRows | GpuRows"
SteppingRows: TypeAlias = "GpuRows"  # rows with the capability ON_GPU

IN_MEMORY = "rows.in-memory"  # X is an array or a CSR matrix in the memory of this process
QUICK = "rows.quick"  # passes are bound by computation: no rows are read from a file
DISTINCT = "rows.distinct"  # equal rows can be found (`keys`, `equal`) and merged into one
# the rows object takes stochastic steps (`batch_steps`, `sampled_weights`) and computes an inverse Hessian per class
# (`class_factor`) itself; np.asarray(X) copies the rows into the memory of this process, which suits small problems
ON_GPU = "rows.on-gpu"


class Targets(NamedTuple):
    """Targets of a block of rows: class codes (m,), and distributions (m, R) if the targets are soft."""

    codes: NDArray[np.int64]
    soft: NDArray | None = None

    def of(self, rows: slice | NDArray) -> Targets:
        """Return the targets of the given rows."""
        return Targets(self.codes[rows], None if self.soft is None else self.soft[rows])


RowLoss = Any  # a `Loss` of kway.linear.losses, which documents the properties that passes use


@dataclass(frozen=True)
class RowLosses:
    """One loss with the targets and weights (n,) of all rows; `weight=None` means that each row has weight 1."""

    loss: RowLoss
    targets: Targets
    weight: NDArray | None

    def loss_sum(self, scores: NDArray, rows: slice) -> float:
        """Return the weighted sum of the losses of the given rows, from their scores (m, R)."""
        row_losses, _ = self.loss.value_gradient(scores, self.targets.of(rows))
        return self.weighted_sum(row_losses, rows)

    def overwrite_with_slopes(self, scores: NDArray, rows: slice) -> float:
        """Overwrite scores (m, R) with the weighted derivatives, and return the weighted sum of the losses."""
        row_losses, slope = self.loss.value_gradient(scores, self.targets.of(rows), scores)
        if self.weight is not None:
            slope *= self.weight[rows, None]
        return self.weighted_sum(row_losses, rows)

    def curvatures(self, scores: NDArray, rows: slice) -> NDArray:
        """Return the weighted second derivatives (m, R) at the scores of the given rows."""
        h = self.loss.curvatures(scores, self.targets.of(rows))
        return h if self.weight is None else h * self.weight[rows, None]

    def weighted_sum(self, values: NDArray, rows: slice | NDArray) -> float:
        """Return the weighted sum of one value per row (m,)."""
        return float(values.sum() if self.weight is None else values @ self.weight[rows])


class Sums(NamedTuple):
    """Sums over all rows: the weighted losses, and their gradients (R, d + 1)."""

    value: float
    gradient: NDArray


class ClassSums(NamedTuple):
    """Sums of the curvatures h_ki of each score k.

    mass      (R,)    sum_i h_ki over all rows
    own_mass  (R,)    sum_i h_ki over the rows of class k
    own_rows  (R, D)  sum_i h_ki [x_i 1] over the rows of class k
    """

    mass: NDArray
    own_mass: NDArray
    own_rows: NDArray


class HessianSums(Protocol):
    """Products with the Hessian of the summed losses at one theta."""

    def product(self, V: NDArray) -> NDArray:
        """Return sum_i w_i (B_i f(V)_i) [x_i 1], (R, d + 1), for V like theta.

        f(V)_i are the scores of row i with weights V, and B_i (R, R) is the Hessian of loss i by its scores.
        """


class StepRule(NamedTuple):
    """Settings of stochastic steps.

    `sq_grad_sums` (R, 1) are the initial sums of squared gradients of Adagrad; with None all scores have the same rate.
    """

    ridge: float = 0.0
    lasso: float = 0.0
    fit_intercept: bool = True
    momentum: float = 0.0
    sq_grad_sums: NDArray | None = None


class StepPlan(NamedTuple):
    """The rows, classes and learning rate of one step of sampled softmax."""

    rows: NDArray[np.int64]  # (b,)
    own: NDArray[np.int64]  # (b,), the position in `ids` of each row's class
    ids: NDArray[np.int64]  # (c,), the classes: first the known ones, then those drawn at random
    known: int  # number of known classes
    log_weight: float  # logarithm of the number of classes that each drawn class represents
    eta: float  # learning rate


def wrap_rows(X: Any, device: Any = None, cluster: bool = False) -> RowPasses:
    """Return the passes over X: in this process, on a `device`, or split over the nodes of the current cluster."""
    if cluster:
        from kway.rows.cluster.linear_passes import ClusterRows

        return ClusterRows(X)
    if device is None and hasattr(X, "value_gradient"):  # a RowPasses already; no other type of rows has this method
        passes: RowPasses = X
        return passes
    if device is not None or isinstance(X, TensorRows):
        from kway.rows.gpu.linear_passes import GpuRows

        return cast(GpuRows, GpuRows.on(device, X))
    return cast(RowPasses, _passes_type(X)(X))


def _passes_type(X: Any) -> Callable[[Any], Any]:
    from kway.rows.dense import BlockRows, DenseRows
    from kway.rows.files import FileCSR, FileRows, MappedCSR, MappedRows
    from kway.rows.sparse import SparseRows

    if isinstance(X, FileCSR):
        return MappedCSR
    if sp.issparse(X):
        return SparseRows
    if isinstance(X, FileRows):
        return MappedRows
    return DenseRows if isinstance(X, np.ndarray) else BlockRows
