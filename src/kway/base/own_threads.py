"""A model's work on its own threads: no more of them than its n_jobs stands for, from the first check to the answer.

`@on_own_threads` stands over whatever does the work of a call: what is asked for on the way there, by code that knows
nothing of the model (stores, units of an index, LAPACK), is held to its n_jobs as well (kway.compute.threads.at_most).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from kway.compute.threads import at_most

Method = TypeVar("Method", bound=Callable[..., Any])


def on_own_threads(work: Method) -> Method:
    """work(model, ...) on no more threads than model._threads(), those of BLAS among them."""

    @wraps(work)
    def held(model: Any, *args: Any, **kwargs: Any) -> Any:
        with at_most(model._threads()):
            return work(model, *args, **kwargs)

    return cast(Method, held)
