"""A file names the model that embeds its texts; only whoever loads it decides whether that one is opened."""

import sys
import types

import numpy as np
import pandas as pd
import pytest

import kway
from kway import modelfile
from kway.errors import InputError, ModelFileError
from kway.pipelines import FeaturedClassifier
from kway.tables.features import embedder as module
from kway.tables.features.embedder import Embedder, Identity
from kway.tables.features.features import Features

TEXTS = {"t": [f"text number {i} about {'ships' if i % 2 else 'trees and leaves'}" for i in range(40)]}
Y = np.arange(40) % 2
REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def no_library(monkeypatch, tmp_path):
    """Vectors without the library: anything that would fetch or load one fails the test."""
    monkeypatch.setenv("KWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Embedder, "_encode", lambda self, texts: np.array([[len(t), 1.0] for t in texts], np.float32))
    fake = types.ModuleType("sentence_transformers")
    fake.SentenceTransformer = lambda *_, **__: pytest.fail("a model was fetched or loaded")
    monkeypatch.setitem(sys.modules, "sentence_transformers", fake)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "minilm"
    place.mkdir()
    (place / "config.json").write_text("{}")
    return place


@pytest.fixture
def saved(folder, tmp_path):
    model = FeaturedClassifier(kway.CentroidClassifier(), Features(embed=str(folder))).fit(TEXTS, Y)
    model.save(tmp_path / "m.kway")
    return tmp_path / "m.kway"


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A model of the hub that was in the cache at the fit and is not any more; what the hub has is asked for."""
    snapshot = tmp_path / REVISION
    snapshot.mkdir()
    monkeypatch.setattr(module, "_in_hub_cache", lambda name, revision=None: snapshot)
    model = FeaturedClassifier(kway.CentroidClassifier(), Features(embed="mini")).fit(TEXTS, Y)
    assert model.features_.embed_ == Identity("hub", "mini", REVISION)
    model.save(tmp_path / "hub.kway")
    monkeypatch.setattr(module, "_in_hub_cache", lambda name, revision=None: None if revision is None else snapshot)
    return tmp_path / "hub.kway"


def test_refused_by_default_with_the_name(saved, folder):
    with pytest.raises(ModelFileError, match=r"embeds its rows with the model '.*minilm'.*embed='"):
        kway.load(saved)
    with pytest.raises(ModelFileError, match="minilm"):
        kway.load(saved, embed=["another", "all-MiniLM-L6-v2"])
    assert modelfile.info(saved).class_name == "FeaturedClassifier"  # looking at it opens nothing


@pytest.mark.parametrize("allow", [str, lambda p: p, lambda p: {str(p)}, lambda p: ["another", p]])
def test_allowed_by_name(saved, folder, allow):
    model = kway.load(saved, embed=allow(folder))
    np.testing.assert_array_equal(model.predict({"t": TEXTS["t"][:4]}), Y[:4])


def test_a_folder_that_has_moved(saved, folder, tmp_path):
    moved = folder.rename(tmp_path / "elsewhere")
    model = kway.load(saved, embed=moved)
    np.testing.assert_array_equal(model.predict({"t": TEXTS["t"][:4]}), Y[:4])
    assert model.features_.embed == str(moved)
    (moved / "config.json").write_text("changed")
    with pytest.raises(InputError, match="whose vectors differ"):
        kway.load(saved, embed=moved)


def test_inside_another_classifier(saved, folder, tmp_path):
    inner = kway.load(saved, embed=folder)
    rows = pd.DataFrame(TEXTS)
    whole = kway.ConformalClassifier(inner, cv="prefit").fit(rows, Y)
    whole.save(tmp_path / "w.kway")
    with pytest.raises(ModelFileError, match="minilm"):
        kway.load(tmp_path / "w.kway")
    np.testing.assert_array_equal(kway.load(tmp_path / "w.kway", embed=folder).predict(rows), Y)


def test_parameters_are_no_back_door(saved, folder, tmp_path):
    model = kway.load(saved, embed=folder)
    model.features = Features(embed="evil/model")
    model.save(tmp_path / "e.kway")
    assert kway.load(tmp_path / "e.kway", embed=folder).features.embed == str(folder)
    plain = FeaturedClassifier(features=Features()).fit(TEXTS, Y)
    plain.features = Features(embed="evil/model")
    plain.save(tmp_path / "p.kway")
    with pytest.raises(ModelFileError, match="evil/model"):
        kway.load(tmp_path / "p.kway")


@pytest.mark.parametrize(
    "name", ["evil/model", "../../evil", "https://evil.example/m", "a\nevil", "evil\0", "evil" * 900, ""]
)
def test_a_file_of_images_chooses_no_model_either(folder, tmp_path, name, monkeypatch):
    monkeypatch.setattr(
        Embedder, "_encode", lambda self, pictures: np.array([p.getextrema()[0] for p in pictures], np.float32)
    )
    pictures = np.zeros((40, 64), np.uint8)
    pictures[Y == 1] = 200
    model = FeaturedClassifier(kway.CentroidClassifier(), Features(embed=str(folder), image=(8, 8, 1)))
    model.fit(pictures, Y).save(tmp_path / "i.kway")
    np.testing.assert_array_equal(kway.load(tmp_path / "i.kway", embed=folder).predict(pictures), Y)
    model.features_.embed_ = Identity("hub", name, REVISION)
    model.features = None
    model.save(tmp_path / "i.kway")
    with pytest.raises(ModelFileError, match="evil" if name else "the model ''"):
        kway.load(tmp_path / "i.kway", embed=["another"])


def test_without_a_network_an_allowed_model_is_named(hub, monkeypatch):
    def unreachable(name):
        raise OSError("Network is unreachable")

    monkeypatch.setattr(module, "_newest", unreachable)
    with pytest.raises(
        InputError, match="'mini' is not on this machine and could not be downloaded: Network is unreach"
    ):
        kway.load(hub, embed="mini").predict(TEXTS)


def test_the_revision_is_compared_before_anything_is_fetched(hub, monkeypatch):
    monkeypatch.setattr(module, "_newest", lambda name: "f" * 40)
    model = kway.load(hub, embed="mini")
    with pytest.raises(InputError, match="whose vectors differ"):
        model.predict(TEXTS)


def test_the_same_revision_is_fetched_and_no_other(hub, monkeypatch):
    fetched = []
    monkeypatch.setattr(module, "_newest", lambda name: REVISION)
    sys.modules["sentence_transformers"].SentenceTransformer = lambda name, **how: fetched.append((name, how))
    np.testing.assert_array_equal(kway.load(hub, embed="mini").predict(TEXTS), Y)
    assert fetched == [("mini", {"revision": REVISION})]


def by_length(texts):
    return [[len(t), 1.0] for t in texts]


def test_a_function_is_given_at_load(tmp_path):
    FeaturedClassifier(kway.CentroidClassifier(), Features(embed=by_length)).fit(TEXTS, Y).save(tmp_path / "f.kway")
    np.testing.assert_array_equal(kway.load(tmp_path / "f.kway", embed=by_length).predict(TEXTS), Y)
    with pytest.raises(InputError, match="pass it again"):
        kway.load(tmp_path / "f.kway").predict(TEXTS)


def test_a_model_without_embedding_takes_none(model):
    with pytest.raises(InputError, match="trained without embed"):
        kway.load(model, embed="mini")
    kway.load(model, embed=["mini"])  # what may be used need not be


@pytest.mark.parametrize("scaled", [False, True])
def test_a_pipeline_chooses_no_more_than_others(folder, tmp_path, scaled):
    from sklearn.pipeline import make_pipeline

    rows = pd.DataFrame(TEXTS)
    model = make_pipeline(Features(embed=str(folder)), kway.SoftmaxClassifier()).fit(rows, Y)
    if scaled:
        model = kway.TemperatureScaledClassifier(model, cv="prefit").fit(rows, Y)
        model.estimator = None  # a Pipeline is no parameter that a file could hold
    kway.save(model, tmp_path / "p.kway")
    with pytest.raises(ModelFileError, match=r"embeds its rows with the model '.*minilm'"):
        kway.load(tmp_path / "p.kway")
    again = kway.load(tmp_path / "p.kway", embed=str(folder))
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
