"""The rounded hinge, one gap at a time: what losses and Newton's method for machines are made of.

    phi(g) = 0, g^2 / 2w, g - w/2     phi'(g) = 0, g / w, 1     for g <= 0, in between, g >= w

With v = clip(g, 0, w), the part of the gap inside the kink, both are one formula: v (2 g - v) / 2w and v / w. A kink
centred on zero, from -h to h, is the same at g + h with w = 2h.
"""

from __future__ import annotations

from kway.compute.kernels.jit import kernel


@kernel
def rounded_hinge(gap, width):
    """phi and phi' of a gap, width > 0; every number keeps the type of the gap, so that rows become vectors."""
    v = min(max(gap, gap - gap), width)
    return v * (gap + (gap - v)) / (width + width), v / width
