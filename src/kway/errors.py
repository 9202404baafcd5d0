"""Every error kway raises on purpose.

    KwayError
    ├── InputError        (ValueError)   data that cannot be used: what, got, do
    │   ├── KindError     (TypeError)    of a kind that is not taken here, such as sparse rows
    │   └── UsageError                   an option that cannot be meant, such as a column that is not there
    ├── CombinationError  (ValueError)   loss, penalty and solver (or metric and index) that cannot work together
    ├── NotSeparableError (ValueError)   a hard margin was asked of data that no hyperplane separates
    ├── BudgetError       (MemoryError)  the answer would not fit in memory; names the way that does
    ├── ModelFileError    (ValueError)   a model file that is foreign, damaged or too new
    └── ClusterError      (RuntimeError) a cluster that is not there, or lost what it held

Each is also the built-in error that scikit-learn users expect, so `except ValueError` keeps working.
"""


class KwayError(Exception):
    """Base of all kway errors."""


class InputError(KwayError, ValueError):
    """Data that cannot be used as it is."""


class KindError(InputError, TypeError):
    """Data of a kind that is not taken here."""


class UsageError(InputError):
    """An option that cannot be meant; the command line leaves with 2, as on other bad usage."""


class CombinationError(KwayError, ValueError):
    """Parts that cannot work together; the message lists what is missing."""


class NotSeparableError(KwayError, ValueError):
    """A hard margin does not exist for this data."""


class BudgetError(KwayError, MemoryError):
    """The answer asked for would not fit in the memory budget."""


class ModelFileError(KwayError, ValueError):
    """A model file that cannot be trusted or read."""


class ClusterError(KwayError, RuntimeError):
    """A cluster that cannot be reached, or that lost a part of the answer."""
