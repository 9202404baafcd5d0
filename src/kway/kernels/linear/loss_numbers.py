"""The numbers of the losses, which kernels switch on; they are named in kway.linear.losses.registry."""

SQUARED, LOGISTIC, PERCEPTRON, HINGE, SIGMOID_SQUARED, SIGMOID_ABSOLUTE = 0, 1, 2, 3, 4, 5
SOFTMAX, SOFTMAX_SQUARED, SOFTMAX_ABSOLUTE, ONE_HOT, MULTI_HINGE = 10, 11, 12, 13, 14
