"""The numbers by which kernels identify losses; kway.linear.losses passes them."""

# losses of a single score per row
SQUARED, LOGISTIC, PERCEPTRON, HINGE, SIGMOID_SQUARED, SIGMOID_ABSOLUTE = range(6)
# joint losses of all scores of a row
SOFTMAX, SOFTMAX_SQUARED, SOFTMAX_ABSOLUTE, ONE_HOT, MULTI_HINGE = range(10, 15)
