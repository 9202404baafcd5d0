"""Family: the base of all families of classifiers, which predict the same held-out rows with all their settings.

A race calls the methods in this order: `configured`, `skip_reason`, `settings`, `planned_seconds` and `fit_predict` for
each split, and `make` for the estimator of the chosen setting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sklearn.utils.validation import has_fit_parameter

import kway
from kway.auto.race.scoring import FoldedRows, Predictions
from kway.confidence.splits import Split
from kway.planning.costs import Size

Stop = Callable[[], bool]  # called between two fits; True if the time is up


@dataclass(frozen=True)
class Family:
    """A kind of classifier with a list of settings.

    Attributes
    ----------
    name : str
        Name on the leaderboard.
    estimator : str
        Name of its estimator in `kway`.
    description : str
        Description in one line.
    view : str
        View of the rows that it learns from. "" is the main view, which is also used if the rows lack the view.
    for_blend : bool
        Whether it stays in the race to its end, so that a blend can contain it.
    """

    name: str
    estimator: str
    params: dict[str, Any] = field(default_factory=dict, kw_only=True)  # parameters of every setting
    description: str = field(default="", kw_only=True)
    view: str = field(default="", kw_only=True)
    for_blend: bool = field(default=False, kw_only=True)

    @property
    def weighs_classes(self) -> bool:
        """Whether class weights change what it learns; nearest class means have none."""
        return self.has("class_weight")

    @property
    def weighs_rows(self) -> bool:
        """Whether it learns with the weights of the rows (`FoldedRows.weights`)."""
        return has_fit_parameter(getattr(kway, self.estimator)(), "sample_weight")

    def has(self, parameter: str) -> bool:
        """Return whether the estimator has a parameter."""
        return parameter in getattr(kway, self.estimator)().get_params()

    def configured(self, class_weight: str | None, device: str) -> Family:
        """Return the family with a class weight and on a device, if its estimator has these parameters."""
        params = dict(self.params)
        if class_weight is not None and self.has("class_weight"):
            params["class_weight"] = class_weight
        if device != "cpu" and self.has("device"):
            params["device"] = device
        return replace(self, params=params)

    def skip_reason(self, data: FoldedRows) -> str:
        """Return why the family is left out on these rows, unless the user names it; "" if it is not left out."""
        raise NotImplementedError

    def settings(self, data: FoldedRows) -> list[dict[str, Any]]:
        """Return the settings for these rows, the preferred one first."""
        raise NotImplementedError

    def planned_seconds(self, size: Size) -> float:
        """Return the expected seconds of all settings on rows of this size, at the default rates (rates.py)."""
        raise NotImplementedError

    def planned_fits(self) -> int:
        """Return the number of fits that `planned_seconds` covers; warm starts make several settings one fit."""
        return 1

    def fit_predict(
        self, data: FoldedRows, split: Split, settings: Sequence[dict[str, Any]], active: Sequence[int], stop: Stop
    ) -> Predictions:
        """Learn from the training rows of a split and predict its held-out rows.

        Only the settings at the positions `active` are used. A family ends early if `stop()` returns True between fits.
        """
        raise NotImplementedError

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """Return the estimator of a setting."""
        seeded = {"random_state": seed} if self.has("random_state") else {}
        return getattr(kway, self.estimator)(**self.params, **setting, **seeded)
