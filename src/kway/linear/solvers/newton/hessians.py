"""Whole Hessians of a linear model and the steps they give, by how a loss couples the scores of a row.

    apart     each score by itself (binary, one-vs-all, squared): R matrices (D, D), Z' diag(bend_k) Z
    softmax   diag(p) - p p' a row: one matrix (R D, R D), blocks Z' diag(p_k) Z less the Gram matrix of [p_1 z ...]
    pairs     joint hinge, bend_ic of the pair (class of i, c): z z' added at (c, c) and (y, y), taken off at (c, y)
              and (y, c)

`diagonal` (R, D) is the penalty's part. Matrices are scaled to a unit diagonal before they are factored.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from kway.compute.lapack import add_gram
from kway.compute.threads import pmap, spans
from kway.linear.losses import Loss
from kway.linear.solvers.newton.standard_columns import Floats, StandardProblem

_BLOCK = 1 << 21  # numbers of a block of stacked rows
_FEW = 8  # scores, above which small matrices are solved together
LIFT = 1e-14  # of a unit diagonal, first try


def step_apart(problem: StandardProblem, bend: Floats, diagonal: Floats, gradient: Floats) -> Floats:
    """H^-1 gradient (R, D), a matrix a score; one for all where they bend alike."""
    if (bend == bend[:, :1]).all() and (diagonal == diagonal[:1]).all():
        return inverse(_gram(problem.Z, bend[:, 0]) + np.diag(diagonal[0]))(gradient.T).T
    n, D = problem.Z.shape
    if len(gradient) > _FEW and n * D * D <= _BLOCK:
        return _step_stacked(problem.Z, bend, diagonal, gradient)

    def one(k: int) -> Floats:
        H = _gram(problem.Z, bend[:, k])
        H[np.diag_indices(len(H))] += diagonal[k]
        return inverse(H)(gradient[k])

    return np.array(pmap(one, range(len(gradient)), problem.n_jobs))


def _step_stacked(Z: Floats, bend: Floats, diagonal: Floats, gradient: Floats) -> Floats:
    """Many small matrices by one product, bend' [z z'] over the rows, and solved together."""
    (n, D), i = Z.shape, np.arange(Z.shape[1])
    H = (bend.T @ (Z[:, :, None] * Z[:, None, :]).reshape(n, D * D)).reshape(-1, D, D)
    H[:, i, i] += diagonal
    size = H[:, i, i]
    scale = 1 / np.sqrt(np.where(size > 0, size, 1))  # (R, D)
    unit = H * scale[:, :, None] * scale[:, None, :]
    unit[:, i, i] = 1 + 1e-13
    try:
        np.linalg.cholesky(unit)
        return scale * np.linalg.solve(unit, (scale * gradient)[:, :, None])[:, :, 0]
    except np.linalg.LinAlgError:
        return np.array([inverse(h)(g) for h, g in zip(H, gradient)])


def step_softmax(problem: StandardProblem, bend: Floats, diagonal: Floats, gradient: Floats) -> Floats:
    """H^-1 gradient; bend (n, R) holds weight_i p_ik."""
    Z, (R, D) = problem.Z, gradient.shape
    H = np.zeros((R * D, R * D), order="F")
    root = 1 / np.sqrt(np.maximum(problem.weight, 1e-300))
    for rows in spans(len(Z), max(1, _BLOCK // (R * D))):
        part = (bend[rows, :, None] * (root[rows, None] * Z[rows])[:, None, :]).reshape(-1, R * D)
        add_gram(H, part, -1.0)
    for k, block in _blocks(R, D):
        H[block, block] += _gram(Z, bend[:, k])
    return _solve(problem, H, diagonal, gradient)


def step_pairs(problem: StandardProblem, bend: Floats, diagonal: Floats, gradient: Floats) -> Floats:
    """H^-1 gradient; bend (n, R) is zero at a row's own class."""
    Z, codes, (R, D) = problem.Z, problem.targets.codes, gradient.shape
    H = np.zeros((R * D, R * D), order="F")
    for c, block in _blocks(R, D):
        H[block, block] += _gram(Z, bend[:, c])
        rows = np.flatnonzero(codes == c)
        H[block, block] += _gram(Z[rows], bend[rows].sum(axis=1))
        for part in spans(len(rows), max(1, _BLOCK // (R * D))):
            z, h = Z[rows[part]], bend[rows[part]]
            cross = (h[:, :, None] * z[:, None, :]).reshape(-1, R * D).T @ z  # (R D, D): block (c', c) of pair (c, c')
            H[:, block] -= cross
            H[block, :] -= cross.T
    return _solve(problem, H, diagonal, gradient)


StepRule = Callable[[StandardProblem, Floats, Floats, Floats], Floats]


def step_of(loss: Loss) -> StepRule:
    """How this loss couples scores."""
    if not loss.couples:
        return step_apart
    return step_softmax if loss.cross_entropy else step_pairs


def step_work(loss: Loss, n: int, D: int, R: int, alike: bool) -> float:
    """Of numbers, in one step."""
    if not loss.couples:
        return (1.0 if alike else R) * (float(n) * D * D + D**3 / 3)
    size = float(R) * D
    return (n * size * size if loss.cross_entropy else 2.0 * n * size * D) + size**3 / 3


def inverse(H: Floats) -> Callable[[Floats], Floats]:
    """x -> H^-1 x, H's upper triangle lifted by as little as lets it be factored."""
    diagonal = np.diag(H)
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1))
    unit, lift = H * scale * scale[:, None], LIFT
    i = np.diag_indices(len(H))
    unit[i] = 1 + lift
    while lift < 1:
        try:
            factor = cho_factor(unit, lower=False, check_finite=False)
        except LinAlgError:
            lift *= 10
            unit[i] = 1 + lift
            continue
        return lambda x: (scale * cho_solve(factor, (scale * x.T).T, check_finite=False).T).T
    return lambda x: (scale * scale * x.T).T


def _solve(problem: StandardProblem, H: Floats, diagonal: Floats, gradient: Floats) -> Floats:
    """H^-1 gradient, the shift common to all scores pinned: no loss sees it, and no step has any of it.

    Of the biases always; of the weights where the penalty is L2 (it leaves them centred), L1 settles them by itself.
    """
    R, D = gradient.shape
    i = np.diag_indices(len(H))
    H[i] += diagonal.ravel()
    if problem.bias or not problem.lasso.any():
        pin = np.ones(D) if not problem.lasso.any() else np.append(np.zeros(D - 1), 1.0)
        size = H[i].reshape(R, D).mean(axis=0) * pin / R
        at = np.arange(D)
        H.reshape(D, R, D, R, order="F")[at, :, at, :] += size[:, None, None]
    return inverse(H)(gradient.ravel()).reshape(R, D)


def _blocks(R: int, D: int) -> list[tuple[int, slice]]:
    return [(k, slice(k * D, (k + 1) * D)) for k in range(R)]


def _gram(Z: Floats, weight: Floats) -> Floats:
    """Z' diag(weight) Z over the rows that have any."""
    rows = np.flatnonzero(weight)
    part = Z[rows] * np.sqrt(weight[rows])[:, None] if len(rows) < len(Z) else Z * np.sqrt(weight)[:, None]
    return part.T @ part
