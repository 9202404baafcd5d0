"""Softmax for very many classes: sums over a sample of them.

sampled.py             the solver; sampled_on_device.py: on a GPU
checkpoints.py         going on after an end
mapped_weights.py      weights larger than memory
"""
