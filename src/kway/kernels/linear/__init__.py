"""Kernels of linear models: losses with their gradients, and the inner loops of solvers.

losses.py, loss_numbers.py   the formulas of the losses, and the numbers by which they are selected
fused.py, csr.py             scores and gradients in one pass over dense rows; products of CSR rows
sgd.py, sampled.py           steps of stochastic gradient descent and of sampled softmax
coordinate.py                coordinate descent on a quadratic model with an L1 penalty
dual.py                      dual coordinate ascent, and sums for Newton's method on a rounded hinge
"""
