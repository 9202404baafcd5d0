"""Search on a GPU: indexes of the host, asked there (`compute/gpu/search`, `compute/gpu/codes`).

on_device.py          flat search, for those whose metric is a product
bits_on_device.py     codes
cells_on_device.py    landmarks
far_kept.py           rows that are a tensor, kept there in full or as codes; far_cells.py: in the order of their cells
"""
