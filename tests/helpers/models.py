"""Every public estimator, in the sizes that tests need."""

import kway

ESTIMATORS = [getattr(kway, name) for name in kway.__all__ if name.endswith("Classifier")]


def small(estimator, **given):
    """Return an estimator at its defaults, except that a blend has small members of each default kind.

    At its defaults a blend learns hundreds of trees per fold: a minute for scikit-learn's checks.
    """
    if estimator is kway.BlendClassifier:
        threads = {name: given[name] for name in given if name == "n_jobs"}
        linear = [kway.SoftmaxClassifier(**threads), kway.KernelSoftmaxClassifier(n_landmarks=20, **threads)]
        trees = [kway.TreesClassifier(kind, n_trees=3, **threads) for kind in ("boosted", "extra")]
        given = {"estimators": [*linear, *trees], "cv": 2} | given
    return estimator(**given)
