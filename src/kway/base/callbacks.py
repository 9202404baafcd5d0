"""scikit-learn's callbacks for iterative estimators, if scikit-learn has them (1.9 or later).

    model.set_callbacks(ProgressBar(), ScoringMonitor(scoring="accuracy")).fit(X, y)

A fit is one task, and each iteration of its solver is a subtask. After an iteration a callback receives a copy of the
estimator with the weights so far. The fit ends early if a callback returns True. The number of iterations is not known
in advance, so a progress bar shows that the fit runs and how long it took, not its share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from sklearn.utils.metaestimators import available_if

from kway.private_names import callback_context, has_callbacks

Attributes = Callable[[], dict[str, Any]]  # returns fitted attributes that make a model of the weights so far
Watch = Callable[[Attributes], bool]  # called after each iteration; returns whether to stop


def _has_protocol(_: Any) -> bool:
    return find_spec("sklearn.callback") is not None


@available_if(_has_protocol)
def set_callbacks(self: Any, *callbacks: Any) -> Any:
    """Set callbacks that are called during `fit`; without arguments, remove them.

    Parameters
    ----------
    *callbacks : FitCallback
        Callbacks of `sklearn.callback`, such as `ProgressBar()`, or objects with the same methods.

    Returns
    -------
    estimator
        The estimator itself.
    """
    from sklearn.callback import CallbackSupportMixin

    return CallbackSupportMixin.set_callbacks(self, *callbacks)


@contextmanager
def callback_task(model: Any, X: Any, y: Any, weight: Any, task: str) -> Iterator[Watch | None]:
    """Run the body as a task of the model's callbacks; yield what to call after each iteration, or None."""
    if not has_callbacks(model):
        yield None
        return
    metadata = None if weight is None else {"sample_weight": weight}
    arguments = {"estimator": model, "X": X, "y": y, "metadata": metadata}
    with callback_context(model, task) as context:
        context.call_on_fit_task_begin(**arguments)

        def begin() -> Any:
            return context.subcontext(task_name="iteration").call_on_fit_task_begin(**arguments)

        iteration = begin()

        def watch(attributes: Attributes) -> bool:
            """End the subtask of an iteration and begin the next; the last one does not run."""
            nonlocal iteration
            stop = iteration.call_on_fit_task_end(**arguments, reconstruction_attributes=attributes)
            iteration = begin()
            return bool(stop)

        try:
            yield watch
        finally:
            iteration.call_on_fit_task_end(estimator=model)
        context.call_on_fit_task_end(**arguments, reconstruction_attributes={})
