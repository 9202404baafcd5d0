"""A saved model of every kind, and rows to predict with it."""

from __future__ import annotations

import json
import warnings

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, StandardScaler

import kway
from kway.confidence.multilabel import MultilabelClassifier
from kway.pipelines import FeaturedClassifier
from kway.search import LSH, Bits, Flat, Int8, KDTree, Landmarks

N = 90


def write(folder):
    """Every model as NAME.kway and its queries as NAME.json in a folder; the names."""
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (model, X, y, fit) in _fresh().items():
            kway.save(model.fit(X, y, **fit), folder / f"{name}.kway")
            _keep(folder, name, X[:6])
            names.append(name)
    return names


def queries(path):
    """The rows that `write` kept for a model."""
    kept = json.loads(path.read_text())
    if kept["kind"] == "table":
        return kept["rows"]
    dense = np.array(kept["rows"], kept["dtype"])
    return sp.csr_matrix(dense) if kept["kind"] == "sparse" else dense


def _keep(folder, name, rows):
    if isinstance(rows, dict):
        kept = {"kind": "table", "rows": {key: list(values)[:6] for key, values in rows.items()}}
    else:
        dense = rows.toarray() if sp.issparse(rows) else np.asarray(rows)
        kind = "sparse" if sp.issparse(rows) else "dense"
        kept = {"kind": kind, "dtype": dense.dtype.str, "rows": dense[:6].tolist()}
    (folder / f"{name}.json").write_text(json.dumps(kept))


class _Rows(dict):
    """A table that can be sliced, as arrays can."""

    def __getitem__(self, key):
        if isinstance(key, slice):
            return {name: values[key] for name, values in self.items()}
        return super().__getitem__(key)


def _fresh():
    """name -> (model, X, y, other arguments of fit)."""
    rng = np.random.default_rng(0)
    y = np.arange(N) % 3
    narrow = (rng.normal(size=(N, 5)) + y[:, None]).astype(np.float32)
    wide = rng.normal(size=(N, 40)) + y[:, None]
    earth = np.column_stack([rng.uniform(-80, 80, N), rng.uniform(-170, 170, N)])
    many = (rng.normal(size=(1500, 12)) + np.arange(1500)[:, None] % 3).astype(np.float32)
    sparse = sp.random(N, 8, 0.4, "csr", np.float32, random_state=0) + sp.csr_matrix(np.eye(N, 8, dtype=np.float32))
    some = {"sample_weight": np.where(np.arange(N) % 4, 1.0, 0.0)}
    words = _Rows(
        size=narrow[:, 0].tolist(),
        colour=[("red", "blue", "green")[c] for c in y],
        says=[f"{('hello world', 'good night', 'see you')[c]} {i % 7}" for i, c in enumerate(y)],
        when=[f"20{10 + i % 9}-01-{1 + i % 28:02d}" for i in range(N)],
    )
    pixels = (rng.uniform(0, 255, (N, 64))).astype(np.uint8)
    levels = np.floor(3 * np.abs(narrow)).astype(float)
    near = kway.NeighborsClassifier
    labels = np.array(["ant", "bee", "wasp"])[y]
    paths = np.array(["ant", "bee/drone", "bee/worker"])[y]
    plain = {
        "certified": (near(3), many, np.arange(1500) % 3),
        "cosine-certified": (near(3, metric="cosine"), many, np.arange(1500) % 3),
        "kdtree-haversine": (near(3, metric=kway.Haversine(degrees=True), index=KDTree()), earth, y),
        "lsh-dot": (near(3, metric="dot", index=LSH(3, 5, 2)), wide, y),
        "lsh-haversine": (near(3, metric="haversine", index=LSH(2, 4, 2)), np.radians(earth), y),
        "landmarks-wide": (near(3, index=Landmarks(7, 3)), wide, labels),
        "landmarks-haversine": (near(3, metric="haversine", index=Landmarks(7, 3)), np.radians(earth), y),
        "landmarks-codes": (near(3, index=Landmarks(7, 3, store=Int8(rerank=False))), wide, y),
        "flat-codes-cosine": (near(3, metric="cosine", index=Flat(store=Int8())), narrow, y),
        "flat-bits": (near(3, index=Flat(store=Bits())), wide, y),
        "flat-bits-cosine": (near(3, metric="cosine", index=Flat(store=Bits(2, rerank=False))), narrow, labels),
        "similarity": (near(4, weights="similarity", metric=kway.Gaussian(1.0), class_weight="balanced"), narrow, y),
        "two-classes": (kway.SoftmaxClassifier(), narrow, y == 1),
        "svm-object": (kway.SVMClassifier(class_weight={"ant": 2.0}), narrow, labels.astype(object)),
        "open-neighbors": (kway.OpenSetClassifier(near(3), class_groups=0, cv=0.3), narrow, labels),
        "open-joint": (kway.OpenSetClassifier(score_by="joint", class_groups=0, cv=0.3), narrow, y),
        "nested": (kway.ConformalClassifier(kway.TemperatureScaledClassifier(near(3), cv=3), cv=0.3), narrow, labels),
        "pipeline": (make_pipeline(StandardScaler(), PCA(3), Normalizer(), kway.SoftmaxClassifier()), narrow, labels),
        "pipeline-near": (make_pipeline(MinMaxScaler(clip=True), TruncatedSVD(2), near(3)), narrow, y),
        "pipeline-table": (make_pipeline(kway.Features(), MaxAbsScaler(), kway.SoftmaxClassifier()), words, y),
        "table": (FeaturedClassifier(), words, labels),
        "table-trees": (FeaturedClassifier(kway.TreesClassifier(n_trees=3), kway.Features(form="columns")), words, y),
        "table-near": (FeaturedClassifier(near(3)), words, y),
        "pixels": (FeaturedClassifier(kway.CentroidClassifier()), pixels, y),
        "mapped": (kway.MappedClassifier(near(3), "mixtures"), narrow, y),
        "hierarchy": (kway.HierarchicalConformalClassifier(kway.CentroidClassifier(), cv=0.3), narrow, paths),
        "label-sets": (MultilabelClassifier(), narrow, paths),
        "label-sets-near": (MultilabelClassifier("neighbors", sep="/", n_neighbors=3), narrow, paths),
        "exemplar": (kway.ExemplarClassifier(3), narrow, y),
        "centroid-landmarks": (kway.CentroidClassifier(index=Landmarks(2, 1)), wide, labels),
        "centroid-bits": (kway.CentroidClassifier("cosine", index=Flat(store=Bits(2))), wide, y),
        "kernel": (kway.KernelSoftmaxClassifier(20), narrow, labels),
        "blend": (kway.BlendClassifier([kway.SoftmaxClassifier(), near(3), kway.SVMClassifier()]), narrow, labels),
        "blend-table": (kway.BlendClassifier([FeaturedClassifier(), FeaturedClassifier(near(3))]), words, labels),
        "bayes": (kway.NaiveBayesClassifier(), np.abs(narrow), labels),
        "boosted": (kway.TreesClassifier(n_trees=4), np.where(narrow > 1.5, np.nan, narrow), labels),
        "boosted-categories": (kway.TreesClassifier(n_trees=5, categorical_features=[2, 4]), levels, y == 1),
        "extra": (kway.TreesClassifier("extra", n_trees=4), narrow, y),
    }
    weighted = {
        "ids": (near(3), narrow, y, some),
        "ids-sparse": (near(3), sparse, labels, some),
        "ids-landmarks": (near(3, index=Landmarks(7, 3)), wide, labels, some),
    }
    return {name: (*case, {}) for name, case in plain.items()} | weighted
