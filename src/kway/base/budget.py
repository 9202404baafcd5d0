"""The memory budget: an answer of size n x K is refused before anything is allocated where it would not fit."""

from __future__ import annotations

from kway.errors import BudgetError

PROBA_BUDGET = 4 * 2**30  # bytes one predict_proba or decision_function may allocate


def refuse_above_budget(n: int, n_classes: int, itemsize: int, what: str) -> None:
    """Raise before an (n, K) array larger than PROBA_BUDGET is allocated."""
    need = n * n_classes * itemsize
    if need > PROBA_BUDGET:
        raise BudgetError(
            f"{what} of {n:,} rows x {n_classes:,} classes needs {need / 2**30:.1f} GiB, above the budget of "
            f"{PROBA_BUDGET / 2**30:.1f} GiB; use predict_topk(X, k), which never builds that array, or pass fewer rows"
        )
