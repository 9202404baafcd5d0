"""Linear models on the device.

losses.py           the losses' formulas over blocks of scores
rows.py             rows on the device: value, gradient and scores
bends.py            products with the Hessian
factors.py          inverse Hessians a class, made and applied there
class_scores.py     some classes of a softmax against all rows, for shards; torch_talk.py  how these add up
batches.py          steps from a few rows: weights that live on the device
best_classes.py     class rows scored in blocks: the best k, the sum over all
class_answers.py    answers of a linear model: labels, scores, probabilities as tensors
sampled_weights.py  steps of sampled softmax: few class rows, in place
softmax_step.py     such a step over very many classes: weights updated in place, scores kept or computed twice
softmax_tiles.py    its Triton kernels: exponentials straight from a product's accumulators
"""
