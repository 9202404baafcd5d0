"""The sections of the report for hierarchies, and the page for several labels per row."""

import numpy as np

import kway


def rows(n=150):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, X + 0.5 * rng.normal(size=(n, 3)) > 0.5


def test_the_page_of_several_labels_lists_them_and_escapes_them(tmp_path):
    X, Y = rows()
    names = np.array(["<script>a</script>", "b & c", "plain"])
    found = kway.fit(X, [names[row].tolist() for row in Y], multilabel=";", models=["logistic"])
    found.report(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "Label by label" in page
    assert "<script>" not in page
    assert "&lt;script&gt;a&lt;/script&gt;" in page
    assert "b &amp; c" in page
    assert f"{found.test.micro_f1:.3f}" in page
    assert "font-variant-numeric" in page  # the styles of all reports


def test_the_page_of_a_hierarchy_has_its_levels(tmp_path):
    X, Y = rows()
    labels = np.where(Y[:, 0], np.where(Y[:, 1], "<i>/x", "<i>/y"), "z")
    found = kway.fit(X, labels, hierarchy="/", sets=0.8, models=["centroid"], also=())
    found.report(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "Level by level" in page
    assert "sets that stop here" in page
    assert "<i>/x" not in page
    plain = kway.fit(X, labels, models=["centroid"], also=())
    plain.report(tmp_path / "p.html")
    assert "Level by level" not in (tmp_path / "p.html").read_text()
