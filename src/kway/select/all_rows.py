"""AllRows: what was chosen on a sample, as all training rows want it, and what that will take.

alpha    of a penalty against the mean loss: K' / K of the one that was best on K' of the K classes, since each class
         has that much smaller a part in the mean
tol      of a linear fit that takes long: a hundredth, if it is not that already. On 20,000 rows of 2,500 classes that
         takes 6 s of processor against 22, and 0.960 of fresh rows are right against 0.957
index    of neighbours: landmarks, with their promise, where an exact answer among all rows would take long
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kway.planning.linear_ways import softmax_way
from kway.planning.rates import Rates
from kway.planning.row_ways import flat_way
from kway.planning.size import Size
from kway.search.auto import choose
from kway.search.flat import Flat
from kway.search.spaces.metrics import pick_metric

_LONG, _WIDE = 60.0, 1e-2  # seconds of a linear fit, at the default rates, from which tol is at least so wide
_SLOW = 1e-3  # seconds of an exact answer, at the default rates: 300,000 rows and more


@dataclass(frozen=True)
class AllRows:
    """The size of all training rows, and of those that were compared on, where these are not all."""

    size: Size
    sample: Size | None = None

    def times(self, by_class: bool) -> float:
        """How many times longer a fit on all rows takes; `by_class`: it costs as much a class as a row."""
        if self.sample is None:
            return 1.0
        return self.size.n / self.sample.n * (self.size.K / self.sample.K if by_class else 1.0)

    def estimator(self, made: Any) -> Any:
        """The estimator of a setting, changed where all rows want it; as it is where they were compared on."""
        if self.sample is None:
            return made
        params = made.get_params()
        changes: dict[str, Any] = {}
        if "alpha" in params:
            changes["alpha"] = params["alpha"] * self.sample.K / self.size.K
        if self._long_fit(params):
            changes["tol"] = _WIDE
        if (name := self._slow_index(params)) is not None:
            changes[name] = "landmarks"
        return made.set_params(**changes)

    def note(self, made: Any) -> tuple[str, ...]:
        """What was changed of an estimator, in words; nothing where nothing was."""
        if self.sample is None:
            return ()
        told = []
        if self.sample.K < self.size.K and "alpha" in made.get_params():
            share = f"{self.sample.K:,} / {self.size.K:,}"
            told.append(f"fitted on all classes, alpha is {share} of the one that was best on the sample")
        if self._long_fit(made.get_params()):
            told.append(f"a fit on all rows takes long, so it ends within tol={_WIDE:g}")
        if self._slow_index(made.get_params()) is not None:
            told.append(
                f"among {self.size.n:,} rows an exact answer takes long, so neighbours are looked for through "
                "landmarks, whose promise the model states; index='flat' is exact"
            )
        return tuple(told)

    def _long_fit(self, params: dict[str, Any]) -> bool:
        exact = {"alpha", "tol"} <= set(params) and params["tol"] < _WIDE
        return exact and softmax_way(self.size, Rates()).fit_seconds > _LONG

    def _slow_index(self, params: dict[str, Any]) -> str | None:
        """The parameter of an index that was left to be chosen, and would be chosen slow."""
        name = next((name for name in params if name.rpartition("__")[2] == "index"), None)
        if name is None or params[name] != "auto" or self.size.sparse:
            return None
        metric = pick_metric(params[name.removesuffix("index") + "metric"])
        flat = isinstance(choose(self.size.n, self.size.d, metric).recipe, Flat)
        slow = flat_way(self.size, Rates()).predict_seconds > _SLOW
        return name if flat and slow else None
