"""The pages and the README say what the records say."""

from pathlib import Path

import pytest

from benchmarks import gpu_page, models, race, readme, records, render
from benchmarks.race import WITH_FIT

ROOT = Path(__file__).parents[2]


def test_the_page_is_in_step_with_the_records():
    page = (ROOT / "docs" / "benchmarks" / "index.md").read_text()
    assert page == render.text(render.measured()), "run python -m benchmarks.render"


def test_the_page_of_the_gpu_is_in_step_with_its_records():
    page = (ROOT / "docs" / "benchmarks" / "gpu.md").read_text()
    assert page == gpu_page.text(gpu_page.measured()), "run python -m benchmarks.render"
    assert "H200" in page


def test_the_readme_has_the_table_of_the_records():
    text = (ROOT / "README.md").read_text()
    assert readme.replace_table(text) == text, "run python -m benchmarks.render"


def test_the_pictures_exist_and_are_small():
    linked = {"ratios.svg", "curves.svg", "ladder.svg", "roofline.svg"}
    folder = ROOT / "docs" / "images" / "bench"
    assert linked <= {p.name for p in folder.iterdir()}
    assert all(p.stat().st_size < 150_000 for p in folder.iterdir())


def saved(target, job, data, peer, seconds, folder, **more):
    """A record of one row."""
    row = {"target": target, "job": job, "data": data, "peer": peer, "kway_seconds": seconds[0],
           "peer_seconds": seconds[1], "least": None, "quality": "same", **more}  # fmt: skip
    records.save({"target": target, "seconds": 1.0, "machine": {"versions": {}}, "rows": [row]}, folder)


def test_what_falls_short_is_said(tmp_path):
    saved("T4d", "svm", "letter", "LinearSVC(hinge)", (1.0, 2.0), tmp_path)
    page = render.text(render.measured(tmp_path))
    assert "against LinearSVC(hinge): 2x; goal 5x" in page
    assert "| 2.0x | T4d | LinearSVC(hinge) | letter | svm | 1.0 s | 2.0 s |" in page
    assert "0 of 1 goals are met" in page
    assert "T1f mnist, faiss Flat (8x)" in page.split("Not measured yet: ")[1]


def test_the_build_is_beside_the_search_and_named_where_it_is_the_reason(tmp_path):
    job, build = "exact euclidean k=5, 10 queries", {"build": {"kway": 1.1, "faiss Flat": 0.2}}
    saved("T1", job, "mnist", "faiss Flat", (0.2, 5.0), tmp_path)
    saved("T1f", WITH_FIT + job, "mnist", "faiss Flat", (1.3, 5.2), tmp_path, points=build)
    page = render.text(render.measured(tmp_path))
    assert (
        "| 25x | T1 | faiss Flat | mnist | exact euclidean k=5, 10 queries | 0.20 s | 5.0 s | 4.0x (1.3 s / 5.2 s)"
        in page
    )
    assert "4x; goal 8x" in page
    assert (
        "Building the index takes 1.1 s of the 1.3 s of kway, and 0.20 s with faiss Flat. The search alone reaches 25x."
        in page
    )
    assert readme.table(tmp_path)[2].endswith("| 0.20 s | faiss Flat 5.0 s | 25x | 4.0x |")


def test_a_peer_that_is_not_installed_is_on_the_page(tmp_path):
    absent = race.absent("T3b", "recall", "mnist", "ScaNN", models.NotInstalled("scann"))
    records.save({"target": "T3b", "seconds": 1.0, "machine": {"versions": {}}, "rows": [absent.record()]}, tmp_path)
    page = render.text(render.measured(tmp_path))
    assert "Not installed, so not measured: ScaNN (`pip install scann`) in T3b." in page


def test_the_ratio_is_what_a_narrow_screen_shows_first():
    assert records.COLUMNS[0] == "ratio"


def test_every_line_of_the_readme_has_a_row():
    missing = [line.task for line in readme.LINES if readme.find_row(line) is None]
    assert not missing


def test_the_charts_show_the_table():
    folder = ROOT / "docs" / "images" / "bench"
    for name, dark in (("faster-light.svg", False), ("faster-dark.svg", True)):
        assert (folder / name).read_text() == readme.chart(dark), "run python -m benchmarks.render"
    assert readme.chart(False).count("<rect") == len(readme.table()) - 2


def test_a_row_of_other_quality_is_left_out(tmp_path):
    saved("T1", "exact", "mnist", "faiss Flat", (0.2, 5.0), tmp_path, equal=False)
    assert readme.table(tmp_path) == list(readme.HEAD)
    with pytest.raises(ValueError):
        readme.replace_table("no marks")
