import numpy as np
import pytest

import kway
from kway.confidence.hierarchy import LabelTree
from kway.errors import InputError

LEAVES = np.array(["a/x/1", "a/x/2", "a/y", "b", "b/z", "c/w"])


def brute_nodes(p, q):
    """The first node on the path of the most probable class whose classes have more than q together."""
    found = []
    for row in p:
        path = LEAVES[row.argmax()].split("/")
        steps = ["/".join(path[:depth]) for depth in range(len(path), 0, -1)]
        below = {s: sum(v for v, leaf in zip(row, LEAVES) if leaf == s or leaf.startswith(s + "/")) for s in steps}
        found.append(next((s for s in steps if below[s] > q), "/"))
    return found


def contains(node, label):
    return node == "/" or label == node or label.startswith(node + "/")


def fitted(rng, draw, Stated, n=400, coverage=0.8):
    X, y = draw(rng, n, truth=0.5)
    inner = Stated(0.5).fit(X)
    inner.classes_ = LEAVES
    return kway.HierarchicalConformalClassifier(inner, coverage=coverage, cv="prefit").fit(X, LEAVES[y]), X, LEAVES[y]


def test_nodes_are_those_of_the_definition(rng, draw, Stated):
    model, X, _ = fitted(rng, draw, Stated)
    nodes = model.predict_node(X)
    assert nodes.tolist() == brute_nodes(model.predict_proba(X), model.threshold_)
    assert len(set(nodes.tolist())) > 4
    for node, labels in zip(nodes.tolist(), model.predict_set(X).to_lists()):
        assert sorted(labels) == [leaf for leaf in LEAVES.tolist() if contains(node, leaf)]


def test_the_threshold_is_the_smallest_that_covers(rng, draw, Stated):
    """Among 399 held-out rows, at least 320 = (399 + 1) 0.8 are covered, and fewer at any smaller threshold."""
    model, X, y = fitted(rng, draw, Stated, n=399)

    def covered(q):
        return sum(contains(node, label) for node, label in zip(brute_nodes(model.predict_proba(X), q), y))

    assert covered(model.threshold_) >= 320 > covered(np.nextafter(model.threshold_, 0))


def test_new_rows_are_covered_as_often_as_guaranteed(rng, draw, Stated):
    """Over 100 draws of 60 held-out rows; the standard error of the mean is about 0.005."""
    shares = []
    for _ in range(100):
        model, *_ = fitted(rng, draw, Stated, n=60)
        X, y = draw(rng, 200, truth=0.5)
        shares.append(np.mean([contains(n, label) for n, label in zip(model.predict_node(X), LEAVES[y])]))
    assert 0.8 - 0.015 < np.mean(shares) < 0.85


def test_too_few_rows_give_the_root_with_a_warning(rng, draw, Stated):
    model, X, _ = fitted(rng, draw, Stated, n=3)
    with pytest.warns(UserWarning, match="fewer than 4 rows"):
        assert set(model.predict_node(X)) == {"/"}


def test_a_saved_model_gives_the_same_nodes(rng, tmp_path):
    X = rng.normal(size=(200, 3))
    y = LEAVES[(X[:, 0] > 0) * 2 + (X[:, 1] > 0)]
    model = kway.HierarchicalConformalClassifier(kway.CentroidClassifier(), coverage=0.7).fit(X, y)
    model.save(tmp_path / "m.kway")
    loaded = kway.load(tmp_path / "m.kway")
    assert np.array_equal(loaded.predict_node(X), model.predict_node(X))
    assert str(loaded.guarantee_) == str(model.guarantee_)


@pytest.mark.parametrize("label", ["a//b", "/a", "a/", "a/ /b"])
def test_empty_levels_are_refused(label):
    with pytest.raises(InputError, match="empty level"):
        LabelTree(np.array(["a/b", label]), "/")


def test_the_separator_must_be_text():
    with pytest.raises(InputError, match="sep must be text"):
        kway.HierarchicalConformalClassifier(sep="").fit([[0.0], [1.0]], ["a", "b"])
