"""Codes of a few bits on the device.

bit_codes.py    the k nearest by codes of a few bits a column; sign_filter.py: 512 signs filtered first
cell_codes.py   codes about the landmarks of their cells; codes_of_tensors.py: codes of rows that are on the device
codes.py        the nearest of a billion by 512-bit codes; code_kernels.py (CUDA C++), code_lists.py (Triton)
counter.py      rows from a counter, never stored; counter_kernels.py (Triton)
"""
