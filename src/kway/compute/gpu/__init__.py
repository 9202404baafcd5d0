"""Work on a GPU through torch: the only place that imports it, and only when a device other than "cpu" is asked for.

device.py       which device ("cpu" | "cuda" | "auto"), arrays to it and back, its memory
far_rows.py     rows that stay there, which the host cuts and multiplies and never copies
nvrtc.py        CUDA C++ compiled at run time
search/         exact search, landmark cells, k-means, class means
codes/          the nearest by codes of a few bits, of a billion too
linear/         losses, gradients, steps and answers of linear models
"""
