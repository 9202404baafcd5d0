"""Class offsets: numbers added to the scores of one-vs-all models, so that scores of different classes are comparable.

Each of these models is fitted on its own, so a rare class may have low scores everywhere. With log-scores z (m, K) of
held-out rows and their classes y, the offsets are delta / beta for the beta > 0 and delta (K,) that minimize

    mean_i [ log sum_c exp(beta z_ic + delta_c) - (beta z_iy + delta_y) ] + |delta|^2 / (2 SPREAD^2 m)

The problem is convex, and the penalty keeps the offset of a class without held-out rows at 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kway.confidence.temperature import best_temperature, mean_top_margin
from kway.probabilities import log_sum_exp

# Standard deviation of the prior of delta. A value of 1 overfits on banking77, with 77 classes of few rows.
SPREAD = 0.5
_MIN_BETA = float(np.sqrt(np.finfo(np.float64).eps))  # keeps beta above 0; scores are divided by their size before


def class_offsets(z: NDArray[np.float64], codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the offset of each class (K,), from scores z (m, K) of held-out rows and their classes (m,)."""
    from scipy.optimize import minimize

    n_classes, size = z.shape[1], mean_top_margin(z)
    if not size > 0:
        return np.zeros(n_classes)
    result = minimize(
        _loss_and_gradient,
        np.append(1.0, np.zeros(n_classes)),
        args=(z / size, codes),
        jac=True,
        method="L-BFGS-B",
        bounds=[(_MIN_BETA, None), *[(None, None)] * n_classes],
        options={"gtol": 1e-6},  # for the gradient of a mean loss; changes an offset by about 1e-4
    )
    return np.asarray(result.x[1:] * size / result.x[0])


def _loss_and_gradient(
    point: NDArray[np.float64], z: NDArray[np.float64], codes: NDArray[np.int64]
) -> tuple[float, NDArray[np.float64]]:
    """Return the objective and its gradient (1 + K,) at the point (beta, delta)."""
    beta, delta = point[0], point[1:]
    m, rows = len(z), np.arange(len(z))
    scores = beta * z + delta  # (m, K)
    normalizer = log_sum_exp(scores)  # (m,)
    penalty_scale = 1 / (SPREAD**2 * m)
    loss = float(np.mean(normalizer - scores[rows, codes])) + penalty_scale * float(delta @ delta) / 2
    p = np.exp(scores - normalizer[:, None])
    class_counts = np.bincount(codes, minlength=z.shape[1])
    beta_slope = (np.vdot(p, z) - z[rows, codes].sum()) / m
    delta_slopes = (p.sum(axis=0) - class_counts) / m + penalty_scale * delta
    return loss, np.append(beta_slope, delta_slopes)


def validated_offsets(z: NDArray[np.float64], codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return `class_offsets` if they lower the log loss of rows that they were not learned from, otherwise zeros (K,).

    Offsets learned from either half of the rows have to lower the mean log loss of the other half by more than two
    standard errors.
    """
    half = np.random.default_rng(0).random(len(z)) < 0.5
    gains = []
    for train in (half, ~half):
        shifted = z + class_offsets(z[train], codes[train])
        gains.append(_log_losses(z, codes, train) - _log_losses(shifted, codes, train))
    gain = np.concatenate(gains)  # (m,)
    helps = len(gain) > 1 and gain.mean() > 2 * gain.std(ddof=1) / np.sqrt(len(gain))
    return class_offsets(z, codes) if helps else np.zeros(z.shape[1])


def _log_losses(z: NDArray[np.float64], codes: NDArray[np.int64], train: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the log losses of the rows that are not in `train`, at the temperature of the rows that are."""
    temperature = best_temperature(z[train], codes[train]).temperature
    scores, classes = z[~train] / temperature, codes[~train]
    return np.asarray(log_sum_exp(scores) - scores[np.arange(len(classes)), classes])
