"""A scikit-learn Pipeline as model files hold it: plain steps by their numbers, the classifier inside.

Pipeline([("scale", StandardScaler()), ("reduce", PCA()), ("model", SoftmaxClassifier())])
kway.save packs it through this class; kway.load gives the Pipeline back. kway's Features, where they are the first
step, are held by a FeaturedClassifier around the rest.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from kway.base.estimator_inside import DelegatedAnswers, prefixed, under
from kway.data.features.features import Features
from kway.errors import ModelFileError
from kway.featured import FeaturedClassifier
from kway.store.plain_steps import pack_step, unpack_step


class PipelinedClassifier(DelegatedAnswers):
    """`steps` [(name, transformer), ...] before `estimator`, whose step is called `name`."""

    steps_: list[tuple[str, Any]]

    def __init__(self, estimator: Any = None) -> None:
        self.estimator = estimator

    @classmethod
    def of(cls, pipeline: Any) -> PipelinedClassifier:
        """A fitted Pipeline whose last step is a classifier of kway's."""
        steps = list(pipeline.steps)
        if not hasattr(pipeline, "classes_"):
            raise ModelFileError(
                f"the last step of the pipeline, {steps[-1][0]!r}, is no fitted classifier; fit it first"
            )
        whole = cls()
        whole.featured_ = isinstance(steps[0][1], Features)
        whole.features_name_ = steps[0][0] if whole.featured_ else ""
        whole.name_ = steps[-1][0]
        whole.steps_ = [] if whole.featured_ else steps[:-1]
        inner = steps[-1][1]
        if whole.featured_:
            inner = FeaturedClassifier()  # without parameters: a Pipeline is none that a file could hold
            inner._join(steps[0][1], pipeline[1:] if len(steps) > 2 else steps[-1][1])
        whole._adopt(inner, _first_that_works(steps))
        return whole

    def fit(self, X: Any, y: Any) -> PipelinedClassifier:
        """Not here: the Pipeline is fitted, and this holds what it learned."""
        raise TypeError("fit the Pipeline itself; this class only holds it in a model file")

    def pipeline(self) -> Any:
        """The Pipeline again."""
        from sklearn.pipeline import Pipeline

        if not self.featured_:
            return Pipeline([*self.steps_, (self.name_, self.estimator_)])
        rest = self.estimator_.estimator_
        after = rest.steps if isinstance(rest, Pipeline) else [(self.name_, rest)]
        return Pipeline([(self.features_name_, self.estimator_.features_), *after])

    def numbers(self, X: Any) -> Any:
        """What the steps make of rows: the X (n, d) that the classifier inside sees."""
        for _, step in self.steps_:
            X = step.transform(X) if _works(step) else X
        return X

    def _rows(self, X: Any) -> Any:
        return self.numbers(X)

    def _passed(self, X: Any) -> Any:
        return X

    # ---- model files

    def _stored_params(self) -> dict[str, Any]:
        return {"estimator": None}

    def _facts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        packed = [pack_step(name, step) for name, step in self.steps_]
        arrays: dict[str, NDArray] = {}
        for i, step in enumerate(packed):
            arrays |= prefixed(f"steps.{i}.", step.arrays)
        facts = {"name": self.name_, "features_name": self.features_name_, "featured": self.featured_}
        return {**facts, "steps": [step.facts for step in packed]}, arrays

    def _restore_facts(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.name_, self.features_name_, self.featured_ = facts["name"], facts["features_name"], facts["featured"]
        self.steps_, columns = [], self.n_features_in_
        for i, step in enumerate(facts["steps"]):
            made = unpack_step(step, under(f"steps.{i}.", arrays), columns)
            columns = len(getattr(made, "components_", range(columns)))
            self.steps_.append((step["name"], made))
        if hasattr(self, "feature_names_in_"):
            _first_that_works([*self.steps_, (self.name_, self.estimator_)]).feature_names_in_ = self.feature_names_in_


def _works(step: Any) -> bool:
    """Whether a step does anything: None and "passthrough" do not."""
    return step is not None and not isinstance(step, str)


def _first_that_works(steps: list[tuple[str, Any]]) -> Any:
    """The step that sees rows as they come; a Pipeline itself asks its first one, which may be no more than a word."""
    return next(step for _, step in steps if _works(step))
