"""The GPU: the only place that imports torch; its modules are imported where a device was asked for, never before.

losses.py           the losses' formulas over blocks of scores on the device
rows.py             rows on the device: value, gradient and scores of a linear model
bends.py            products with its Hessian
softmax_step.py     a step of softmax over very many classes, weights updated in place
softmax_tiles.py    the Triton kernels of that step: exponentials straight from a product's accumulators
"""
