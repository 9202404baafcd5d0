"""Read tables, images and arrays, turn them into numbers, and write output files.

reading         read_rows reads a file, a folder, a built-in dataset or rows in memory as LabeledRows
read_options    ReadOptions and TextForm: the options of the user and the form of a text file
labeled_rows    LabeledRows, RowRequirements, and the rows as a matrix of numbers
row_stream      rows in pieces, the parts of a file, and the size of a file
sources/        files and frames -> tables and images
features/       tables and images -> matrices of numbers
datasets/       built-in datasets, and files of arrays
outputs         checks of output paths, and the files that are written
"""
