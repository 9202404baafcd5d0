"""Kernels of linear models: losses with their gradients, and the inner loops of solvers.

losses  loss_numbers            the formulas
fused  csr                      value and gradient in one pass over the rows
sgd  sampled  coordinate  dual  steps of solvers
"""
