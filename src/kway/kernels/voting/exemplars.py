"""Exemplars: a block of linear classifiers (m, d), each for one row against the rows of other classes.

Scores (m, n) of exemplars against rows. Row j is exemplar e's own, of its class (takes no part in training), held out
(of another class, in e's fold) or a negative (of another class, in another fold).
"""

from __future__ import annotations

import math

import numpy as np

from kway.kernels.jit import kernel

_LEAST = 10  # held-out negatives that a calibration sees at least
PULL = 0.01  # weight of the prior on a slope; at 1 the probabilities of digits come out too cautious by 0.2


@kernel
def squared_hinge(scores, own, codes, folds, shares, positive, losses):
    """Turn scores (m, n) into d loss / d score in place, and fill losses (m,).

    loss_e = positive / 2 max(0, 1 - f_own)^2 + share_e / 2 sum over negatives of max(0, 1 + f)^2
    """
    m, n = scores.shape
    zero = scores.dtype.type(0)
    for e in range(m):
        i = own[e]
        code, fold, share = codes[i], folds[i], shares[e]
        miss = max(0.0, 1.0 - scores[e, i])
        total = 0.0
        for j in range(n):
            if codes[j] != code and folds[j] != fold:
                over = max(0.0, 1.0 + scores[e, j])
                total += over * over
                scores[e, j] = share * over
            else:
                scores[e, j] = zero
        scores[e, i] = -positive * miss
        losses[e] = 0.5 * (positive * miss * miss + share * total)


@kernel
def nearby(line, i, codes, folds, n_folds):
    """The score from which on rows count in the calibration of row i's exemplar, whose scores are line (n,).

    Above it lie half as many held-out rows as the weighted rows of the class: where the exemplar would vote. Fitted on
    all rows, the far ones decide the slope, and MNIST digits came out 0.04 less accurate.
    """
    held, same = np.empty(len(line), line.dtype), 0
    count = 0
    for j in range(len(line)):
        if codes[j] == codes[i]:
            same += 1
        elif folds[j] == folds[i]:
            held[count] = line[j]
            count += 1
    wanted = max(_LEAST, same // (2 * n_folds))
    if count <= wanted:
        return -1e300
    return np.float64(np.partition(held[:count], count - wanted)[count - wanted])


@kernel
def platt(scores, own, codes, folds, n_folds, n_iterations, slopes, offsets):
    """Fit P(same class | f) = sigmoid(slope f + offset) of each exemplar on rows near it that it was not trained on.

    Held-out rows count 1, other rows of the class 1 / n_folds, so that their ratio is that of the data. Targets are
    smoothed as Platt's, and a weak pull of the slope to 1 decides where there are no rows to tell.
    """
    m, n = scores.shape
    near, is_same = np.empty(n), np.empty(n, np.bool_)
    for e in range(m):
        i = own[e]
        floor = nearby(scores[e], i, codes, folds, n_folds)
        count = 0
        same, other = 0.0, 0.0
        for j in range(n):
            if j == i or scores[e, j] < floor or (codes[j] != codes[i] and folds[j] != folds[i]):
                continue
            near[count], is_same[count] = scores[e, j], codes[j] == codes[i]
            count += 1
            if codes[j] == codes[i]:
                same += 1.0 / n_folds
            else:
                other += 1.0
        slopes[e], offsets[e] = sigmoid_fit(
            near[:count], is_same[:count], 1.0 / n_folds, (same + 1.0) / (same + 2.0), 1.0 / (other + 2.0), n_iterations
        )


@kernel
def sigmoid_fit(scores, is_same, share, high, low, n_iterations):
    """Slope and offset by Newton's method; rows of the class, weight `share`, aim at `high`, the others at `low`."""
    slope, offset = 1.0, 0.0
    for _ in range(n_iterations):
        g_slope, g_offset = PULL * (slope - 1.0), 0.0
        h_slope, h_both, h_offset = PULL, 0.0, 1e-6
        for j in range(len(scores)):
            f, weight = scores[j], share if is_same[j] else 1.0
            t = max(-40.0, min(40.0, slope * f + offset))
            p = 1.0 / (1.0 + math.exp(-t))
            residual = weight * (p - (high if is_same[j] else low))
            curve = weight * max(p * (1.0 - p), 1e-6)
            g_slope += residual * f
            g_offset += residual
            h_slope += curve * f * f
            h_both += curve * f
            h_offset += curve
        determinant = h_slope * h_offset - h_both * h_both
        step = (h_offset * g_slope - h_both * g_offset) / determinant
        shift = (h_slope * g_offset - h_both * g_slope) / determinant
        largest = max(abs(step), abs(shift))
        damp = min(1.0, 2.0 / largest) if largest > 0.0 else 1.0
        slope = max(1e-3, slope - damp * step)
        offset -= damp * shift
        if largest < 1e-4:
            break
    return slope, offset
