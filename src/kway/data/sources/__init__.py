"""Files to tables and pictures. Nothing here knows what a feature is, or what data sets have names.

table_files     csv, tsv, JSON lines, parquet, a folder of parquet or csv, stdin -> pyarrow Table
pieces          the same of any size, some rows at a time              npy_files   arrays where they lie
delimited       the text among them; text_form: its separator, encoding, decimal mark and header
ragged          rows of a csv unlike the others                       code_columns  0052 is no number
head_rows       its first rows as they are written                    csv_rows  the cells of csv text
written_values  numbers and dates as people write them -> numbers and dates (dates, word_gaps)
unpacking       gzip and npz, with a limit
images          a folder of images, one sub-folder a class -> rows of bytes
frames          pandas, polars, dicts of columns -> the same Table; rows of any make counted and taken
arrow_types     what type an Arrow column has: text, number, date, vector
column_names    columns that are missing or named twice, with the nearest name offered
file_columns    the files of a folder as one table: which of them lacks a column, or holds other values in it
label_column    a column -> labels; 007 stays text
split_column    a column that says train, val, test -> which rows are which
requirements    what rows must bring to be used with a model
table_writing   columns out: csv, parquet, npz, complete or absent
"""
