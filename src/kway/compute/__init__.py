"""Where the work runs.

threads.py   the one worker pool, BLAS held to one thread inside
lapack.py    symmetric routines that let go of the GIL
kernels/     every numba function, a file a theme
gpu/         torch, Triton and CUDA: the only place that imports torch
"""
