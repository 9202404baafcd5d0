"""Models by the names that the command line uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kway.data.names import listing, nearest
from kway.errors import InputError


@dataclass(frozen=True)
class Model:
    """A public class of kway with the parameters that its name stands for."""

    class_name: str
    params: dict[str, Any] = field(default_factory=dict)
    linear: bool = True

    def make(self, alpha: float | None = None, seed: int = 0) -> Any:
        """A new estimator; `alpha` and the seed go to those that have such a parameter."""
        import kway

        estimator = getattr(kway, self.class_name)(**self.params)
        wanted = {"alpha": alpha, "random_state": seed}
        have = estimator.get_params(deep=False)
        return estimator.set_params(**{k: v for k, v in wanted.items() if k in have and v is not None})


MODELS = {
    "softmax": Model("SoftmaxClassifier"),
    "logistic": Model("LogisticClassifier"),
    "svm": Model("SVMClassifier"),
    "perceptron": Model("PerceptronClassifier"),
    "least-squares": Model("LeastSquaresClassifier"),
    "least-squares-number": Model("LeastSquaresClassifier", {"targets": "number"}),
    "neighbors": Model("NeighborsClassifier", linear=False),
    "centroid": Model("CentroidClassifier", linear=False),
}
ALL = "all"  # every linear model


def pick_models(name: str) -> list[str]:
    """The names that `name` stands for: itself, or every linear one."""
    if name == ALL:
        return [n for n, model in MODELS.items() if model.linear]
    if name not in MODELS:
        raise InputError(f"no model {name!r}{nearest(name, MODELS)}; known are {listing([*MODELS, ALL])}")
    return [name]
