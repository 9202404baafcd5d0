"""Files and frames -> pyarrow tables and arrays. Nothing here knows features or built-in datasets.

table_files   csv, JSON, parquet, folders, stdin -> pyarrow Table; pieces of large files; decompression with a limit
whole_files   Excel, ARFF, Feather, SQLite -> pyarrow Table; these files are always read as a whole
csv_files     csv -> pyarrow Table, on top of pyarrow's reader
text_form     encoding, separator and header of a csv
values        numbers and dates in everyday notation, words for missing values, codes such as 0052
frames        pandas, polars, dicts of columns -> pyarrow Table; types and names of columns
labels        a column -> labels; the column `split`
images        a folder of images -> rows of bytes
writing       columns -> csv, JSON lines, parquet, npz
"""
