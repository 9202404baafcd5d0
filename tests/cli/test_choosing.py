"""How the choice is made, what is promised, and why: the options of `kway fit`, and `kway explain`."""

import numpy as np
import pytest

import kway


@pytest.fixture
def rare(tmp_path):
    """A table of which one class is rare and overlaps: accuracy and balanced accuracy choose differently."""
    rng = np.random.default_rng(0)
    kind = np.where(rng.random(400) < 0.08, "rare", "common")
    x = np.where(kind == "rare", 1.5, 0.0) + rng.normal(size=400)
    lines = [f"{a:.4f},{b:.4f},{k}" for a, b, k in zip(x, rng.normal(size=400), kind)]
    path = tmp_path / "rare.csv"
    path.write_text("\n".join(["telling,noise,kind", *lines]))
    return path


def test_the_choice_is_made_by_the_measure_and_said(answer, cli, rare):
    plain = answer("compare", rare, "-t", "kind", "--model", "softmax,neighbors")
    weighed = answer("compare", rare, "-t", "kind", "--model", "softmax,neighbors", "--metric", "balanced",
                     "--class-weight", "balanced", "--folds", 4)  # fmt: skip
    assert plain["metric"] == "accuracy"
    assert weighed["metric"] == "balanced"
    first = weighed["models"][0]
    assert len(first["fold_scores"]) == 4
    assert first["score"] == max(m["score"] for m in weighed["models"])
    assert first["score"] > 0.65
    out = cli("compare", rare, "-t", "kind", "--model", "softmax", "--metric", "macro-f1")[1]
    assert "ordered by macro-f1" in out


@pytest.mark.parametrize("extra", [(), ("--metric", "macro-f1")])
def test_80_columns_are_enough(cli, rare, monkeypatch, extra):
    monkeypatch.setenv("COLUMNS", "80")
    out = cli("compare", rare, "-t", "kind", "--model", "softmax,neighbors-manhattan,centroid", *extra)[1]
    assert "…" not in out
    assert all(name in out for name in ("softmax", "neighbors-manhattan", "centroid"))
    assert all(len(line) <= 80 for line in out.splitlines()[2:8])


def test_log_loss_leaves_out_what_states_no_probabilities(answer, rare):
    found = answer("compare", rare, "-t", "kind", "--model", "softmax,svm", "--metric", "log-loss", "--repeats", 2)
    assert [m["model"] for m in found["models"]] == ["softmax"]
    assert len(found["models"][0]["fold_scores"]) == 10
    assert "svm" in found["skipped"] or any("no log loss" in note for note in found["notes"])


def test_other_libraries_stand_beside_and_are_never_chosen(answer, cli, rare):
    wanted = ("--model", "centroid", "--also", "sklearn.naive_bayes.GaussianNB")
    found = answer("fit", rare, "-t", "kind", *wanted)
    assert found["best"] == "centroid"
    (line,) = found["references"]
    assert line["model"] == "GaussianNB"
    assert len(line["fold_accuracy"]) == 5
    assert any("from another library, not saved" in note and "it is better" in note for note in found["notes"])
    code, _, err = cli("compare", rare, "-t", "kind", "--also", "sklearn.naive_bayes.Gauss")
    assert code == 2
    assert "cannot be imported" in err


def long_texts(n_classes: int, rows: int) -> list[str]:
    """Lines `text,topic`: 116 words that every topic uses, and 4 of sixty that are its own."""
    rng = np.random.default_rng(0)
    words = np.unique(["".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), 6)) for _ in range(6000)])
    rng.shuffle(words)
    usual = 1 / np.arange(1, 1001)
    lines = []
    for topic in np.repeat(np.arange(n_classes), rows):
        own = words[1000 + 60 * topic : 1060 + 60 * topic]
        said = [*rng.choice(words[:1000], 116, p=usual / usual.sum()), *rng.choice(own, 4)]
        lines.append(f"{' '.join(rng.permutation(said))},topic {topic}")
    return lines


def test_naive_bayes_is_chosen_where_texts_are_long_and_few(answer, tmp_path):
    """A word that one topic alone uses decides for it, however rare: a machine has too few rows to learn each."""
    (tmp_path / "texts.csv").write_text("\n".join(["text,topic", *long_texts(12, 25)]))
    found = answer("fit", tmp_path / "texts.csv", "-t", "topic")
    assert found["best"] == "naive-bayes"
    lines = {line["model"]: line["accuracy"] for line in found["models"]}
    assert lines["naive-bayes"] > lines["svm-smooth"] + 0.2
    assert found["test"]["accuracy"] > 0.4


def test_sets_and_unknown_reach_the_answers(answer, cli, rare, read_csv):
    found = answer("fit", rare, "-t", "kind", "--model", "softmax", "--sets", 0.9, "--unknown", 0.1)
    assert "at least 0.9" in found["sets"]["guarantee"]
    assert 0.75 <= found["sets"]["coverage"] <= 1
    assert "at most 0.1" in found["unknown"]["guarantee"]
    assert 0.75 <= found["unknown"]["answered"] <= 1
    strange = rare.parent / "strange.csv"
    strange.write_text("telling,noise\n0.1,0.2\n900,900\n")
    assert cli("predict", "model.kway", strange, "--out", "p.csv")[0] == 0
    near, far = read_csv("p.csv")
    assert near["prediction"] == "common"
    assert "common" in near["set"].split("|")
    assert set(far["set"].split("|")) <= {"common", "rare", ""}
    assert {"prediction", "set"} <= far.keys()
    assert cli("fit", rare, "-t", "kind", "--sets", 1.5)[0] == 2


def test_unknown_is_a_word_among_numbers(answer, cli, read_csv):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    X = rng.normal(size=(300, 2)) * 0.3 + np.array([[0, 0], [4, 0], [0, 4]])[y]
    np.savez("three.npz", X=X, y=y)
    answer("fit", "three.npz", "--model", "neighbors", "--unknown", 0.05)
    np.savez("asked.npz", X=np.array([[0.0, 0.0], [50.0, 50.0]]))
    assert cli("predict", "model.kway", "asked.npz", "--out", "p.csv")[0] == 0
    assert [row["prediction"] for row in read_csv("p.csv")] == ["0", "unknown"]


def test_why(answer, cli, rare):
    answer("fit", rare, "-t", "kind", "--model", "softmax")
    told = answer("explain", "model.kway", rare, "-t", "kind")
    pulls = {(r["class"], r["column"]): r["pull"] for r in told["reasons"]}
    assert pulls["rare", "telling"] > 0 > pulls["common", "telling"]
    assert abs(pulls["rare", "telling"]) > 3 * abs(pulls["rare", "noise"])
    code, out, _ = cli("explain", "model.kway")
    assert code == 0
    assert "telling" in out


@pytest.mark.parametrize("family", ["neighbors", "centroid"])
def test_a_model_without_weights_keeps_why(family, answer, cli, rare):
    n_test = answer("fit", rare, "-t", "kind", "--model", family)["data"]["test_rows"]
    kept = answer("explain", "model.kway")
    assert f"on {n_test:,} test rows) if a column is shuffled" in kept["how"]
    assert [r["column"] for r in kept["reasons"]] == ["telling", "noise"]
    assert [r["column"] for r in answer("explain", "model.kway", "-n", 1)["reasons"]] == ["telling"]
    code, out, _ = cli("explain", "model.kway")
    assert code == 0
    assert "telling" in out
    shuffled = answer("explain", "model.kway", rare, "-t", "kind")
    assert {r["column"] for r in shuffled["reasons"]} == {"telling", "noise"}
    assert "rows given" in shuffled["how"]  # they may be those it was fitted from
    model = kway.load("model.kway")
    model.reasons_ = None  # as of a file that has none
    kway.save(model, "without.kway")
    code, _, err = cli("explain", "without.kway")
    assert code == 1
    assert "pass labeled rows" in err


def test_means_of_texts_name_their_words(answer):
    rng = np.random.default_rng(0)
    words = {"cat": ["purr", "whisker"], "dog": ["bark", "leash"], "cow": ["moo", "milk"]}
    say = lambda k: " ".join(rng.permutation([*words[k], *rng.choice(["here", "was", "a", "of", "to", "it"], 4)]))  # noqa: E731
    lines = [f"{say(k)},{k}" for k in words for _ in range(30)]
    with open("texts.csv", "w") as out:
        out.write("\n".join(["text,label", *lines]))
    answer("fit", "texts.csv", "-t", "label", "--model", "centroid")
    for rows in ((), ("texts.csv", "-t", "label")):
        told = answer("explain", "model.kway", *rows, "-n", 2)
        for kind, own in words.items():
            named = " ".join(r["column"] for r in told["reasons"] if r["class"] == kind)
            assert any(word in named for word in own)
        assert all(r["pull"] > 0 for r in told["reasons"])


def test_pixels_have_no_names_and_the_error_says_what_to_do(answer, cli):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 500)) + y[:, None]
    np.savez("wide.npz", X=X, y=y)
    answer("fit", "wide.npz", "--model", "neighbors")
    for rows in ((), ("wide.npz",)):
        code, _, err = cli("explain", "model.kway", *rows)
        assert code == 1
        assert "500 columns have no names" in err
        assert "worst mistakes" in err
        assert "models='softmax'" in err


def test_weights_are_scaled_to_the_spread_of_the_columns():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)) * [1.0, 1000.0]
    y = (X[:, 0] + X[:, 1] / 4000 > 0).astype(int)
    model = kway.SoftmaxClassifier(alpha=1e-4).fit(X, y)
    assert kway.explain(model, X).columns[1][0] == "x0"
    assert kway.explain(model, X).pulls[1, 0] > 0


def test_a_device_that_is_none_is_refused_before_anything_is_fitted(cli, rare):
    code, _, said = cli("fit", rare, "-t", "kind", "--model", "softmax", "--device", "abacus", "--out", "m.kway")
    assert code == 2
    assert "--device must be one of 'cpu', 'cuda', 'auto' or 'cuda:N', got 'abacus'" in said
