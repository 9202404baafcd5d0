"""Where rows live, and rows that are read block by block.

passes           what linear solvers ask of rows; wrap_rows chooses the implementation
dense            passes over an array in memory, or over blocks of rows
sparse           passes over a CSR matrix in memory
files            rows larger than memory, in mapped files, and passes over them
matrices         operations on a block of rows and on symmetric matrices
gpu/             passes and searches over rows on a GPU; the only importer of torch
cluster/         passes over rows on the nodes of a Ray cluster; the only importer of ray
blocks           rows that are read block by block, with or without labels
"""
