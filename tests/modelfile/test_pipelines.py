"""Pipelines of plain steps in model files: the same answers back, other steps refused by name, odd files refused."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    RobustScaler,
    StandardScaler,
)

import kway
from kway.cli import run
from kway.errors import ModelFileError
from kway.modelfile import container
from kway.modelfile.plain_steps import STEPS

X, y = load_iris(return_X_y=True)
PLAIN = {
    "StandardScaler": [StandardScaler()],
    "no mean, no scale": [StandardScaler(with_mean=False, with_std=False)],
    "MinMaxScaler": [MinMaxScaler(feature_range=(-1, 2), clip=True)],
    "MaxAbsScaler": [MaxAbsScaler()],
    "RobustScaler": [RobustScaler(quantile_range=(10.0, 90.0))],
    "Normalizer": [Normalizer("l1")],
    "Binarizer": [MinMaxScaler(), Binarizer(threshold=0.4)],
    "PCA": [PCA(2, whiten=True, random_state=0)],
    "TruncatedSVD": [TruncatedSVD(3, random_state=1)],
    "a chain": [StandardScaler(), PCA(0.95), "passthrough", Normalizer()],
    "nothing before": [],
    "a step that does nothing first": ["passthrough", StandardScaler(), PCA(2)],
    "nothing but steps that do nothing": ["passthrough", None],
}


def test_every_plain_step_is_tried():
    assert {type(s).__name__ for steps in PLAIN.values() for s in steps if hasattr(s, "fit")} == set(STEPS)


@pytest.mark.parametrize("steps", PLAIN.values(), ids=PLAIN.keys())
def test_a_pipeline_comes_back_as_it_was(steps, tmp_path):
    pipe = make_pipeline(*steps, kway.SoftmaxClassifier()).fit(X, y)
    kway.save(pipe, tmp_path / "p.kway")
    again = kway.load(tmp_path / "p.kway", verify=True)
    assert type(again) is Pipeline
    assert [name for name, _ in again.steps] == [name for name, _ in pipe.steps]
    np.testing.assert_allclose(again.predict_proba(X), pipe.predict_proba(X), rtol=1e-12)  # BLAS sums as arrays lie
    np.testing.assert_array_equal(again.classes_, pipe.classes_)
    for (_, ours), (_, theirs) in zip(again.steps, pipe.steps):
        if hasattr(theirs, "fit"):
            assert ours.get_params() == theirs.get_params()
            assert ours.n_features_in_ == theirs.n_features_in_
    assert kway.load(tmp_path / "p.kway").fit(X, y).score(X, y) == pipe.score(X, y)


def test_a_scaler_goes_on_learning_from_where_it_was(tmp_path):
    gappy = np.where(np.arange(600).reshape(150, 4) % 7 == 0, np.nan, X)
    scaler = StandardScaler().fit(gappy)
    pipe = Pipeline([("scale", scaler), ("m", kway.CentroidClassifier().fit(scaler.transform(X), y))])
    kway.save(pipe, tmp_path / "p.kway")
    again = kway.load(tmp_path / "p.kway").named_steps["scale"]
    np.testing.assert_array_equal(again.n_samples_seen_, scaler.n_samples_seen_)
    assert not np.allclose(scaler.partial_fit(X).mean_, np.nanmean(gappy, axis=0), rtol=1e-9)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_step_that_learned_nothing_is_refused_when_saved(tmp_path):
    scaler = StandardScaler().fit(np.column_stack([X, np.full(150, np.nan)]))
    pipe = Pipeline([("scale", scaler), ("m", kway.CentroidClassifier().fit(np.column_stack([X, y]), y))])
    with pytest.raises(ModelFileError, match=r"step 'scale' .* learned NaN or infinity \(mean_\)"):
        kway.save(pipe, tmp_path / "p.kway")


@pytest.mark.parametrize("idle", ["passthrough", None])
@pytest.mark.parametrize("after", [[], [("scale", StandardScaler())]], ids=["alone", "scaled"])
def test_a_step_that_does_nothing_keeps_the_names_of_the_columns(idle, after, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(X, columns=list("abcd"))
    pipe = Pipeline([("idle", idle), *after, ("c", kway.CentroidClassifier())]).fit(frame, y)
    kway.save(pipe, "p.kway")
    again = kway.load("p.kway")
    np.testing.assert_array_equal(again.predict(frame), pipe.predict(frame))
    with pytest.raises(ValueError, match=r"feature names|columns"):
        again.predict(frame[list("dcba")])
    frame.assign(target=y).to_csv("d.csv", index=False)
    assert run(["predict", "p.kway", "d.csv", "-o", "o.csv"]) == 0
    np.testing.assert_array_equal(pd.read_csv("o.csv")["prediction"], pipe.predict(frame))


def test_sparse_rows_and_names_of_columns(tmp_path):
    rows = sp.random(60, 50, 0.2, format="csr", random_state=0)
    labels = np.arange(60) % 3
    pipe = make_pipeline(TruncatedSVD(5, random_state=0), kway.NeighborsClassifier()).fit(rows, labels)
    kway.save(pipe, tmp_path / "p.kway")
    np.testing.assert_array_equal(kway.load(tmp_path / "p.kway").predict(rows), pipe.predict(rows))
    frame = pd.DataFrame(X, columns=list("abcd"))
    named = make_pipeline(StandardScaler(), kway.SoftmaxClassifier()).fit(frame, y)
    kway.save(named, tmp_path / "n.kway")
    again = kway.load(tmp_path / "n.kway")
    np.testing.assert_array_equal(again.predict(frame), named.predict(frame))
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame[list("dcba")])


@pytest.mark.parametrize("after", [[], [StandardScaler(), PCA(3)], ["passthrough"]], ids=["alone", "scaled", "idle"])
def test_features_come_first(after, tmp_path):
    frame = pd.DataFrame({"a": X[:, 0], "kind": np.where(X[:, 1] > 3, "x", "y"), "price": [f"{v},5" for v in y * 3]})
    pipe = make_pipeline(kway.Features(), *after, kway.SoftmaxClassifier()).fit(frame, y)
    kway.save(pipe, tmp_path / "p.kway")
    again = kway.load(tmp_path / "p.kway")
    assert [name for name, _ in again.steps] == [name for name, _ in pipe.steps]
    np.testing.assert_array_equal(again.predict_proba(frame), pipe.predict_proba(frame))


def test_the_command_reads_pipelines(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 2], "kind": np.where(X[:, 3] > 1, "x", "y")})
    for names, first in ((["a", "b", "kind"], kway.Features()), (["a", "b"], StandardScaler())):
        pipe = make_pipeline(first, kway.SoftmaxClassifier()).fit(frame[names], y)
        kway.save(pipe, "p.kway")
        frame.assign(target=y).to_csv("d.csv", index=False)
        assert run(["predict", "p.kway", "d.csv", "--topk", "2", "-o", "o.csv"]) == 0, capfd.readouterr().err
        np.testing.assert_array_equal(pd.read_csv("o.csv")["prediction"], pipe.predict(frame[names]))
        assert run(["evaluate", "p.kway", "d.csv", "-t", "target", "--json"]) == 0
        assert run(["info", "p.kway"]) == 0


class Odd(StandardScaler):
    """A transformer with code of its own."""


REFUSED = {
    "a function": (FunctionTransformer(np.log1p), "step 'functiontransformer' of the pipeline is a sklearn"),
    "a selection": (SelectKBest(k=2), "step 'selectkbest' .* StandardScaler, MinMaxScaler"),
    "a subclass": (Odd(), "step 'odd'"),
    "a seed that is no number": (PCA(2, random_state=np.random.RandomState(0)), "step 'pca': PCA.random_state"),
}


@pytest.mark.parametrize(("step", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_other_steps_are_refused_by_name(step, message, tmp_path):
    pipe = make_pipeline(step, kway.SoftmaxClassifier()).fit(np.abs(X), y)
    with pytest.raises(ModelFileError, match=message):
        kway.save(pipe, tmp_path / "p.kway")
    assert not list(tmp_path.iterdir())


def test_a_pipeline_must_end_in_a_fitted_classifier_of_kways(tmp_path):
    with pytest.raises(ModelFileError, match="LogisticRegression is not a classifier of kway"):
        kway.save(make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y), tmp_path / "p.kway")
    with pytest.raises(ModelFileError, match="fit it first"):
        kway.save(make_pipeline(StandardScaler(), kway.SoftmaxClassifier()), tmp_path / "p.kway")
    pipe = make_pipeline(StandardScaler(), kway.Features(), kway.SoftmaxClassifier()).fit(X, y)
    with pytest.raises(ModelFileError, match="step 'features' of the pipeline"):
        kway.save(pipe, tmp_path / "p.kway")


def rewritten(path, change):
    """The model file with its manifest and tensors changed."""
    opened = container.read(path, mmap=False)
    manifest, tensors = opened.manifest, dict(opened.tensors)
    change(manifest, tensors)
    container.write(path, {k: v for k, v in manifest.items() if k != "format_version"}, tensors)


def test_odd_files_are_refused(tmp_path):
    path = tmp_path / "p.kway"
    pipe = make_pipeline(StandardScaler(), PCA(2), kway.SoftmaxClassifier()).fit(X, y)
    changes = {
        "axis 0 of array 'steps.0.mean_'": lambda m, t: t.update({"steps.0.mean_": np.zeros(3)}),
        "not above 0": lambda m, t: t.update({"steps.0.scale_": np.zeros(4)}),
        "steps.1.components_.* missing": lambda m, t: t.pop("steps.1.components_"),
        "NaN or infinity": lambda m, t: t.update({"steps.1.mean_": np.full(4, np.inf)}),
        "evil": lambda m, t: t.update({"steps.0.evil": np.zeros(4)}),
    }
    for message, change in changes.items():
        kway.save(pipe, path)
        rewritten(path, change)
        with pytest.raises(ModelFileError, match=message):
            kway.load(path)
    kway.save(pipe, path)
    text = path.read_bytes()
    path.write_bytes(text.replace(b"StandardScaler", b"StandardDcaler"))
    with pytest.raises(ModelFileError):
        kway.load(path)
