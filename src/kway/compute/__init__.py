"""Where the work runs: threads, compiled kernels (and, one file each, GPU and cluster)."""
