"""The numbers by which kernels identify losses; kway.linear.losses passes them."""

from enum import IntEnum


class LossNumber(IntEnum):
    """First the losses of a single score per row, then the joint losses of all scores of a row."""

    SQUARED = 0
    LOGISTIC = 1
    PERCEPTRON = 2
    HINGE = 3
    SIGMOID_SQUARED = 4
    SIGMOID_ABSOLUTE = 5
    SOFTMAX = 10
    SOFTMAX_SQUARED = 11
    SOFTMAX_ABSOLUTE = 12
    ONE_HOT = 13
    MULTI_HINGE = 14


SQUARED, LOGISTIC, PERCEPTRON, HINGE, SIGMOID_SQUARED, SIGMOID_ABSOLUTE = (int(kind) for kind in list(LossNumber)[:6])
SOFTMAX, SOFTMAX_SQUARED, SOFTMAX_ABSOLUTE, ONE_HOT, MULTI_HINGE = (int(kind) for kind in list(LossNumber)[6:])
