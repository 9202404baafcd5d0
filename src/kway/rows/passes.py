"""What linear solvers ask of rows X (n, d), wherever the rows live.

    F(theta) = alpha R(W) + mean_i w_i loss(f_i, y_i),   f = X W' + b,   theta = [W b] (R, d + 1)

Rows compute the sums of such an objective over all rows; the objective itself (linear/objective.py) adds the penalty
and divides by n. A pass receives `RowLosses`: the loss, the targets and the weights of all rows. `wrap_rows` is
the one place that asks what X is.

    rows/dense.py            an array in memory: a fused kernel, or BLAS a block at a time
    rows/sparse.py           a CSR matrix in memory
    rows/files.py            rows in mapped files, dense or CSR, read some at a time
    rows/gpu/passes.py       rows on a GPU
    rows/cluster/passes.py   rows on the nodes of a cluster
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

IN_MEMORY = "rows.in-memory"  # X is an array or a CSR matrix in the memory of this process
FETCHED = "rows.fetched"  # np.asarray(X) copies the rows into the memory of this process
QUICK = "rows.quick"  # a pass takes computation alone: no row is read from a file
DISTINCT = "rows.distinct"  # equal rows can be found (`keys`, `equal`) and merged into one
STEPS = "rows.steps"  # the rows make stochastic steps themselves (`batch_steps`, `sampled_weights`)
CLASS_FACTOR = "rows.class-factor"  # the rows make the inverse Hessians of all classes themselves (`class_factor`)


class Targets(NamedTuple):
    """Targets of a block of rows: codes (m,), and distributions (m, R) if they are soft."""

    codes: NDArray[np.int64]
    soft: NDArray | None = None

    def of(self, rows: slice | NDArray) -> Targets:
        """Those of some rows."""
        return Targets(self.codes[rows], None if self.soft is None else self.soft[rows])


class RowLoss(Protocol):
    """What passes need to know of a loss; linear/losses has the classes."""

    @property
    def kernel(self) -> int:
        """The number of its kernel."""
        ...

    @property
    def margin(self) -> float:
        """The margin of a hinge."""
        ...

    @property
    def width(self) -> float:
        """The width over which a kink is rounded."""
        ...

    @property
    def compiled(self) -> bool:
        """Whether a kernel computes it."""
        ...

    @property
    def joint(self) -> bool:
        """Whether all classes are in one problem."""
        ...

    @property
    def hinge(self) -> bool:
        """Whether it is a hinge."""
        ...

    @property
    def couples(self) -> bool:
        """Whether the slope of a class depends on the scores of others."""
        ...

    @property
    def cross_entropy(self) -> bool:
        """Whether its Hessian is diag(p) - p p'."""
        ...

    @property
    def p_curvatures(self) -> bool:
        """Whether its second derivatives are p (1 - p)."""
        ...

    def value_gradient(
        self, scores: NDArray, targets: Targets, gradient: NDArray | None = None
    ) -> tuple[NDArray, NDArray]:
        """Values (m,) and slopes (m, R) of a block of scores (m, R)."""
        ...

    def curvatures(self, scores: NDArray, targets: Targets) -> NDArray:
        """Second derivatives by every score (m, R)."""
        ...


@dataclass(frozen=True)
class RowLosses:
    """The losses of all rows: one loss, with the targets and weights (n,) of the rows (None: all weigh 1)."""

    loss: RowLoss
    targets: Targets
    weight: NDArray | None

    def values(self, scores: NDArray, rows: slice) -> float:
        """The weighted sum of the losses of some rows, from their scores (m, R)."""
        value, _ = self.loss.value_gradient(scores, self.targets.of(rows))
        return self.weighted_sum(value, rows)

    def slopes(self, scores: NDArray, rows: slice) -> float:
        """Replace the scores (m, R) of some rows by their weighted slopes; returns the weighted sum of the losses."""
        value, slope = self.loss.value_gradient(scores, self.targets.of(rows), scores)
        if self.weight is not None:
            slope *= self.weight[rows, None]
        return self.weighted_sum(value, rows)

    def curvatures(self, scores: NDArray, rows: slice) -> NDArray:
        """Weighted second derivatives (m, R) at the scores of some rows."""
        h = self.loss.curvatures(scores, self.targets.of(rows))
        return h if self.weight is None else h * self.weight[rows, None]

    def weighted_sum(self, values: NDArray, rows: slice | NDArray) -> float:
        """The weighted sum of one value (m,) per row."""
        return float(values.sum() if self.weight is None else values @ self.weight[rows])


class Sums(NamedTuple):
    """Over all rows: of the weighted losses, and of their gradients (R, d + 1)."""

    value: float
    gradient: NDArray


class ClassSums(NamedTuple):
    """Per score k: sum_i h_ki (R,), the same over the rows of class k (R,), and their sum_i h_ki [x_i 1] (R, D)."""

    mass: NDArray
    own_mass: NDArray
    own_rows: NDArray


class HessianSums(Protocol):
    """Products with the Hessian of the summed losses at one theta."""

    def product(self, V: NDArray) -> NDArray:
        """sum_i w_i (B_i f(V)_i) [x_i 1], (R, d + 1); B_i (R, R) is the Hessian of row i's loss in its scores."""
        ...

    def advance(self, t: float) -> float:
        """Go t along the direction of the last product; returns the largest change of any score so far."""
        ...


class StepRule(NamedTuple):
    """How stochastic steps are made; `sizes` (R, 1) are Adagrad's first sums of squares, None: one rate for all."""

    ridge: float = 0.0
    lasso: float = 0.0
    fit_intercept: bool = True
    momentum: float = 0.0
    sizes: NDArray | None = None


class StepPlan(NamedTuple):
    """A step of sampled softmax: rows (b,), the place of each one's own class among `ids`, the classes (c,) of which
    the first `known` were not drawn, the logarithm of the weight of each drawn one, and the rate."""

    rows: NDArray[np.int64]
    own: NDArray[np.int64]
    ids: NDArray[np.int64]
    known: int
    log_weight: float
    eta: float


class RowPasses(Protocol):
    """Rows X (n, d) and the passes of a linear model over them."""

    @property
    def X(self) -> Any:
        """The rows as solvers index them: an array, CSR, or an object that gives blocks of rows."""
        ...

    @property
    def n(self) -> int:
        """Number of rows."""
        ...

    @property
    def d(self) -> int:
        """Number of features."""
        ...

    @property
    def dtype(self) -> np.dtype:
        """Float type of the rows."""
        ...

    @property
    def offers(self) -> frozenset[str]:
        """What solvers may rely on beyond passes: IN_MEMORY, FETCHED, QUICK, DISTINCT, STEPS, CLASS_FACTOR."""
        ...

    @property
    def most_taken(self) -> int:
        """Rows that may be taken into memory at once."""
        ...

    def take(self, chosen: NDArray | slice) -> RowPasses:
        """Some of the rows."""
        ...

    def sample(self) -> RowPasses:
        """Rows that can be taken from: these, or a sample of them that is in memory."""
        ...

    def laid_out(self, theta: NDArray) -> NDArray:
        """theta in the memory order that the products read."""
        ...

    def scores(self, theta: NDArray, rows: slice) -> NDArray:
        """f = X W' + b of some rows (m, R)."""
        ...

    def fill_scores(self, theta: NDArray, rows: slice, scores: NDArray) -> None:
        """f of some rows into scores (m, R)."""
        ...

    def value(self, theta: NDArray, losses: RowLosses) -> float:
        """The sum of the weighted losses."""
        ...

    def value_gradient(self, theta: NDArray, losses: RowLosses) -> Sums:
        """The sums of the weighted losses and of their gradients."""
        ...

    def hessian_at(self, theta: NDArray, losses: RowLosses) -> HessianSums:
        """Products with the Hessian at theta."""
        ...

    def curvatures(self, theta: NDArray, losses: RowLosses) -> NDArray:
        """Weighted second derivatives of each row's loss by each score at theta, (R, n)."""
        ...

    def class_sums(self, theta: NDArray, losses: RowLosses, bias: bool) -> ClassSums:
        """What the rows of a class add to the curvature of its score, in one pass that keeps no curvature."""
        ...

    def gram(self, weight: NDArray | None, bias: bool, dtype: np.dtype) -> NDArray:
        """[X 1]' diag(weight) [X 1] / n (D, D): its upper triangle at least, in Fortran order."""
        ...

    def squares(self, h: NDArray | None) -> NDArray:
        """sum_i h_ki x_ij^2 (R, d); without h (R, n) the plain sums (1, d)."""
        ...

    def row_squares(self) -> NDArray:
        """||x_i||^2 (n,)."""
        ...

    def mean_square(self) -> float:
        """The mean of the squares of all numbers in X."""
        ...

    def mean(self) -> NDArray:
        """The mean row (d,); zero if the rows are sparse."""
        ...

    def less(self, mean: NDArray) -> RowPasses:
        """Each row less the mean (d,)."""
        ...

    def shuffled(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """The rows in a new order (n,)."""
        ...

    def mark(self) -> str:
        """A digest that a change of any value changes."""
        ...

    def keys(self, direction: NDArray) -> NDArray[np.float64]:
        """x_i . direction (n,): equal rows have equal keys."""
        ...

    def equal(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether rows a are rows b, one by one."""
        ...

    def units(self) -> NDArray[np.float64]:
        """The root mean square (d,) of each column's nonzero entries; 1 if all are zero."""
        ...

    def divided(self, units: NDArray) -> RowPasses:
        """Each column divided by its unit."""
        ...

    def reads_once(self, losses: RowLosses, n_scores: int) -> bool:
        """Whether gradients are computed by the fused kernel, which reads each row once."""
        ...


class BatchSteps(Protocol):
    """Steps on weights, wherever they are."""

    def run(self, order: NDArray[np.int64], eta: NDArray) -> float:
        """Steps from these rows, a batch at a time, at these rates; the sum of the losses met."""
        ...

    def fetch(self) -> NDArray:
        """theta (R, d + 1) as it is now."""
        ...


class SampledWeights(Protocol):
    """The weights of a run, wherever they are."""

    def step(self, plan: StepPlan, number: int) -> None:
        """Step `number` (from 0), on the classes of the plan."""
        ...

    def decay(self, step: int, eta: float) -> None:
        """Every class has all the decay that it is due."""
        ...

    def best(self, rows: NDArray[np.int64], k: int) -> NDArray[np.int64]:
        """The k best classes of some rows (m, k)."""
        ...

    def mean_loss(self, watched: Any, losses: RowLosses) -> float:
        """The mean loss of some rows against all classes."""
        ...

    def squares(self) -> float:
        """||W||^2."""
        ...

    def finite(self) -> bool:
        """Whether all steps so far were numbers."""
        ...

    def fetch(self) -> None:
        """Bring theta, sizes and met up to date."""
        ...


class SteppingRows(RowPasses, Protocol):
    """What rows offer beyond passes: STEPS and CLASS_FACTOR."""

    def step_rows(self) -> int:
        """Rows of a step of sampled softmax if the fit does not say."""
        ...

    def batch_steps(self, losses: RowLosses, weight: NDArray, theta: NDArray, rule: StepRule, batch: int) -> BatchSteps:
        """Steps of SGD on weights that are with the rows."""
        ...

    def sampled_weights(
        self, losses: RowLosses, theta: NDArray, sizes: NDArray, met: NDArray, ridge: float, fit_intercept: bool
    ) -> SampledWeights:
        """The weights of a run of sampled softmax, with the rows."""
        ...

    def class_factor(
        self, theta: NDArray, losses: RowLosses, plain: NDArray, ridges: NDArray, n_drawn: int, share: float
    ) -> Callable[[NDArray], NDArray]:
        """An inverse Hessian per score at theta, from about n_drawn rows and a share of the `plain` matrix (D, D)."""
        ...


def wrap_rows(X: Any, device: Any = None, cluster: bool = False) -> RowPasses:
    """The passes over rows X: in this process, on a `device`, or split over the nodes of the current cluster."""
    wrapped: RowPasses
    if cluster:
        from kway.rows.cluster.passes import ClusterRows

        wrapped = ClusterRows(X)
    elif device is not None:
        from kway.rows.gpu.passes import GpuRows

        wrapped = GpuRows.on(device, X)
    else:
        wrapped = _kind(X)(X)
    return wrapped


def _kind(X: Any) -> Callable[[Any], Any]:
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
        from kway.rows.gpu.passes import GpuRows

        return GpuRows
    if isinstance(X, np.ndarray):
        return DenseRows
    return lambda given: given if hasattr(given, "value_gradient") else BlockRows(given)
