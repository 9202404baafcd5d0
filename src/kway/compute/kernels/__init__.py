"""Every numba function, a file a theme, so that an edit recompiles one theme. Kernels trust their input."""
