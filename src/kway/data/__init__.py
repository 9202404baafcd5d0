"""Data on its way in, and files on their way out.

gate, labels, messages      checked rows and labels: what every estimator passes first
reading                     DATA of the command line -> LabelledRows (labelled_rows): the one reader
asked_options               how to read it, as the command and kway.fit are asked, checked once
given_rows                  the same for rows that are in memory already
number_rows                 the same as a matrix of numbers, for models without features of their own
extent                      how much there is, without reading it
sources/                    files to tables              features/   tables to rows of numbers
blocks/                     rows some at a time          outputs/    where files go, and how
datasets/                   sets by name                 suggest     "did you mean ...?"
column_spread               standard deviations of columns
stratified                  rows dealt into folds and drawn, class by class
"""
