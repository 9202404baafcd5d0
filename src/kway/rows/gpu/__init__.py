"""Work on a GPU through torch: the only place that imports it, and only when a device other than "cpu" is asked for.

device.py       which device ("cpu" | "cuda" | "auto"), arrays to it and back, its memory
far_rows.py     rows that stay there, which the host cuts and multiplies and never copies
search          exact.py, int8_search.py (all rows), cells.py (landmark cells and k-means), bit_codes.py, sign_codes.py
                (codes of a few bits), counter.py (rows from a counter), triton_search.py, code_kernels.py (kernels),
                nvrtc.py (CUDA C++ compiled at run time)
linear fits     passes.py (gradients, Hessian products, factors), held_rows.py (rows, targets, weights), losses.py,
                steps.py (SGD, sampled softmax), softmax_step.py, softmax_tiles.py (softmax over many classes)
answers         class_rows.py: the best classes of each row
"""
