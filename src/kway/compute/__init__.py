"""Where the work runs.

threads.py      the one worker pool, BLAS held to one thread inside
forked_work.py  Python's own work on another core, by a copy of the process
lapack.py       symmetric routines that let go of the GIL
kernels/        every numba function, a file a theme
cluster/        several machines, through Ray
gpu/            torch, Triton and CUDA: the only place that imports torch
"""
