"""The errors that kway raises.

    KwayError
    ├── InputError        (ValueError)   data that cannot be used
    │   ├── KindError     (TypeError)    data of a type that is not accepted, such as sparse rows
    │   └── UsageError                   an option that is wrong, such as a missing column
    ├── CombinationError  (ValueError)   loss, penalty and solver (or metric and index) that cannot work together
    ├── NotSeparableError (ValueError)   a hard margin for data that no hyperplane separates
    ├── BudgetError       (MemoryError)  the result does not fit into memory; names an alternative
    ├── ModelFileError    (ValueError)   a file that is not a model, damaged or too new
    └── ClusterError      (RuntimeError) a cluster that cannot be reached, or lost data

Each is also the built-in error that scikit-learn users expect, so `except ValueError` keeps working.
"""


class KwayError(Exception):
    """Base of all kway errors."""


class InputError(KwayError, ValueError):
    """Data or a parameter that cannot be used."""


class KindError(InputError, TypeError):
    """Data of a type that is not accepted."""


class UsageError(InputError):
    """An option that is wrong; the command line exits with 2."""


class CombinationError(KwayError, ValueError):
    """Parts that cannot work together; the message lists what is missing."""


class NotSeparableError(KwayError, ValueError):
    """A hard margin does not exist for this data."""


class BudgetError(KwayError, MemoryError):
    """The result would not fit into the memory budget."""


class ModelFileError(KwayError, ValueError):
    """A model file that cannot be trusted or read."""


class ClusterError(KwayError, RuntimeError):
    """A cluster that cannot be reached, or that lost a part of the result."""
