"""The interface between linear solvers and rows X (n, d), which may be in memory, in files, on a GPU or a cluster.

    F(theta) = alpha R(W) + mean_i w_i loss(f_i, y_i),   f = X W' + b,   theta = [W b] (R, d + 1)

A `RowPasses` object computes the sums of this objective over all rows. The objective (linear/objective.py) divides them
by n and adds the penalty. Each pass receives `RowLosses`: the loss, the targets and the weights of all rows.
`wrap_rows` selects the implementation from the type of X.

    n rows, d features, m rows of a block, R scores (1 for two classes, else K), D columns: d, or d + 1 with the bias

Every implementation has all methods of `RowPasses`, except that `keys`, `equal`, `units` and `scale_columns` need the
capability DISTINCT. `offers` lists the capabilities; solvers ask for them before they use what depends on them.

    rows/dense.py            an array in memory: a fused kernel, or BLAS a block at a time
    rows/sparse.py           a CSR matrix in memory
    rows/files.py            rows in memory-mapped files, dense or CSR, read in blocks
    rows/gpu/linear_passes.py       rows on a GPU
    rows/cluster/linear_passes.py   rows on the nodes of a cluster
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

IN_MEMORY = "rows.in-memory"  # X is an array or a CSR matrix in the memory of this process
FETCHED = "rows.fetched"  # np.asarray(X) may copy the rows into the memory of this process
QUICK = "rows.quick"  # passes are bound by computation: no rows are read from a file
DISTINCT = "rows.distinct"  # equal rows can be found (`keys`, `equal`) and merged into one
STEPS = "rows.steps"  # the rows object takes stochastic steps itself (`batch_steps`, `sampled_weights`)
CLASS_FACTOR = "rows.class-factor"  # the rows object computes an inverse Hessian per class itself (`class_factor`)


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


class RowPasses(Protocol):
    """Rows X (n, d) and the passes of a linear model over them. No method changes X."""

    @property
    def X(self) -> Any:
        """Rows: an array, a CSR matrix, or an object whose slices are blocks of rows."""

    @property
    def n(self) -> int:
        """Number of rows."""

    @property
    def d(self) -> int:
        """Number of features."""

    @property
    def dtype(self) -> np.dtype:
        """Floating-point type of the rows."""

    @property
    def offers(self) -> frozenset[str]:
        """Capabilities: a subset of IN_MEMORY, FETCHED, QUICK, DISTINCT, STEPS, CLASS_FACTOR."""

    @property
    def max_rows_in_memory(self) -> int:
        """Largest number of rows that `take` may copy into memory."""

    def take(self, chosen: NDArray | slice) -> RowPasses:
        """Return an object of the chosen rows only."""

    def sample(self) -> RowPasses:
        """Return rows that support `take`: this object, or a sample of its rows in memory."""

    def with_layout(self, theta: NDArray) -> NDArray:
        """Return theta in the memory layout that the products read (C or Fortran order); copy only if needed."""

    def scores(self, theta: NDArray, rows: slice) -> NDArray:
        """Return f = X W' + b of the given rows, (m, R)."""

    def value(self, theta: NDArray, losses: RowLosses) -> float:
        """Return the sum of the weighted losses."""

    def value_gradient(self, theta: NDArray, losses: RowLosses) -> Sums:
        """Return the sums of the weighted losses and of their gradients."""

    def hessian_at(self, theta: NDArray, losses: RowLosses) -> HessianSums:
        """Return the operator that multiplies with the Hessian at theta."""

    def curvatures(self, theta: NDArray, losses: RowLosses) -> NDArray:
        """Return the weighted second derivatives of each row's loss by each score at theta, (R, n)."""

    def class_sums(self, theta: NDArray, losses: RowLosses, bias: bool) -> ClassSums:
        """Return the sums of the curvatures per class, computed in one pass without storing an (R, n) array."""

    def gram(self, weight: NDArray | None, bias: bool, dtype: np.dtype) -> NDArray:
        """Return [X 1]' diag(weight) [X 1] / n (D, D) in Fortran order; only the upper triangle is valid."""

    def squares(self, h: NDArray | None) -> NDArray:
        """Return sum_i h_ki x_ij^2 (R, d) for h (R, n); without h return sum_i x_ij^2 (1, d)."""

    def row_squares(self) -> NDArray:
        """Return ||x_i||^2 for each row, (n,)."""

    def mean_square(self) -> float:
        """Return the mean of the squared entries of X."""

    def mean(self) -> NDArray:
        """Return the vector (d,) that centers the rows: their mean, or zeros for sparse rows, which stay sparse."""

    def subtract_mean(self, mean: NDArray) -> RowPasses:
        """Return rows from which the mean (d,) is subtracted; sparse rows are returned unchanged."""

    def shuffled(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the row numbers in random order, (n,)."""

    def fingerprint(self) -> str:
        """Return a digest of the values, or of the names, sizes and times of the files, that identifies the rows."""

    def keys(self, direction: NDArray) -> NDArray[np.float64]:
        """Return the projections x_i . direction, (n,); those of equal rows are equal."""

    def equal(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether row a[i] equals row b[i], for each i."""

    def units(self) -> NDArray[np.float64]:
        """Return the root mean square of the nonzero entries of each column, (d,); 1 for a column of zeros."""

    def scale_columns(self, units: NDArray) -> RowPasses:
        """Return rows with each column divided by its unit (d,)."""


class SteppingRows(RowPasses, Protocol):
    """Rows with the capabilities STEPS and CLASS_FACTOR."""

    def step_rows(self) -> int:
        """Return the default batch size of sampled softmax."""

    def batch_steps(self, losses: RowLosses, weight: NDArray, theta: NDArray, rule: StepRule, batch: int) -> Any:
        """Return an SGD run like `HostSteps` (linear/solvers/sgd.py), with weights on the device of the rows."""

    def sampled_weights(
        self,
        losses: RowLosses,
        theta: NDArray,
        sq_grad_sums: NDArray,
        last_step: NDArray,
        ridge: float,
        fit_intercept: bool,
    ) -> Any:
        """Return weights like `HostWeights` (linear/solvers/sampled.py), on the device of the rows."""

    def class_factor(
        self, theta: NDArray, losses: RowLosses, plain: NDArray, ridges: NDArray, n_drawn: int, share: float
    ) -> Callable[[NDArray], NDArray]:
        """Return a function that multiplies each row of a gradient (R, d + 1) by an approximate inverse Hessian.

        The Hessian of score k is approximated by (1 - share) times an estimate from about n_drawn rows, which are drawn
        in proportion to their curvature, plus share times `plain` (D, D), the unweighted Gram matrix scaled to the same
        mean curvature, plus diag(ridges).
        """


def wrap_rows(X: Any, device: Any = None, cluster: bool = False) -> RowPasses:
    """Return the passes over X: in this process, on a `device`, or split over the nodes of the current cluster."""
    if cluster:
        from kway.rows.cluster.linear_passes import ClusterRows

        return ClusterRows(X)
    if device is not None:
        from kway.rows.gpu.linear_passes import GpuRows

        return GpuRows.on(device, X)
    if hasattr(X, "value_gradient"):  # a RowPasses already; no type of rows has this method
        passes: RowPasses = X
        return passes
    return _passes_type(X)(X)


def _passes_type(X: Any) -> Callable[[Any], Any]:
    from kway.rows.dense import BlockRows, DenseRows
    from kway.rows.files import FileCSR, FileRows, MappedCSR, MappedRows
    from kway.rows.gpu.tensor_rows import TensorRows
    from kway.rows.sparse import SparseRows

    if isinstance(X, FileCSR):
        return MappedCSR
    if sp.issparse(X):
        return SparseRows
    if isinstance(X, FileRows):
        return MappedRows
    if isinstance(X, TensorRows):
        from kway.rows.gpu.linear_passes import GpuRows

        return GpuRows
    return DenseRows if isinstance(X, np.ndarray) else BlockRows
