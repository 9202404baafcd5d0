"""Landmark cells: rows grouped around means, so that a query visits a few groups.

kmeans.py         the means; stream_kmeans.py: of rows that come in blocks (`cluster_blocks`)
projection.py     short rows, in which cells are found
cell_table.py     rows cell by cell; bit_cells.py: as codes; cell_streams.py: as codes, from rows that come in blocks
cell_groups.py    queries that visit the same cells, together
"""
