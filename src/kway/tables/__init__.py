"""Reading tables and arrays, turning them into numbers, and writing files.

reading         the one reader: files, folders, named sets, rows in memory -> LabeledRows
options         ReadOptions and TextForm: how a table is to be read
labeled_rows   LabeledRows, RowRequirements; rows as a matrix of numbers
extent          the number of rows, features and classes of a file without reading all of it
sources/        files and frames -> tables          features/   tables -> rows of numbers
datasets/       sets by name, files of arrays       outputs/    where files go, and how they are written
"""
