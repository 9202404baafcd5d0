"""Reading tables and arrays, turning them into numbers, and writing files.

reading         the one reader: files, folders, named sets, rows in memory -> LabeledRows
options         ReadOptions and TextForm: how a table is to be read
labeled_rows    LabeledRows, RowRequirements; rows as a matrix of numbers
row_stream      rows in pieces, parts of files, and the size of a file without reading all of it
sources/        files and frames -> tables          features/   tables -> rows of numbers
datasets/       sets by name, files of arrays       outputs.py  where files go, and how they are written
"""
