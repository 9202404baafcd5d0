"""Data on its way in.

gate, labels, messages, row_blocks   checked rows and labels: what every estimator passes first
reading                              DATA of the command line -> LabelledRows (labelled_rows): the one reader
asked_options                        how to read it, as the command and kway.fit are asked, checked once
row_stream                           the same a block at a time, for DATA of any size; extent: how much there is
labelled_blocks                      blocks (X, y) of a generator, checked as they come
file_rows  sparse_files              rows larger than memory: mapped files, read some at a time
row_parts                            files cut into parts that other processes read
given_rows                           the same for rows that are in memory already
number_rows                          the same as a matrix of numbers, for models without features of their own
sources/                             files to tables            features/   tables to rows of numbers
datasets/                            sets by name               atomic      files that are complete or absent
suggest                              "did you mean ...?"        cache_folder  what can be computed again
output_paths  own_files              where outputs may go; which files kway wrote itself
column_spread                        standard deviations of columns
stratified                           rows dealt into folds and drawn, class by class
"""
