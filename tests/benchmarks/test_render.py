"""The pages and the README say what the records say."""

from pathlib import Path

import pytest

from benchmarks import readme, records, render

ROOT = Path(__file__).parents[2]


def test_the_page_is_in_step_with_the_records():
    page = (ROOT / "docs" / "benchmarks" / "index.md").read_text()
    assert page == render.text(render.measured()), "run python -m benchmarks.render"


def test_the_readme_has_the_table_of_the_records():
    text = (ROOT / "README.md").read_text()
    assert readme.put(text) == text, "run python -m benchmarks.render"


def test_the_pictures_exist_and_are_small():
    linked = {"ratios.svg", "curves.svg", "ladder.svg", "roofline.svg"}
    folder = ROOT / "docs" / "images" / "bench"
    assert linked <= {p.name for p in folder.iterdir()}
    assert all(p.stat().st_size < 150_000 for p in folder.iterdir())


def test_what_falls_short_is_said(tmp_path):
    row = {"target": "T4d", "job": "svm", "data": "letter", "peer": "LinearSVC", "kway_seconds": 1.0,
           "peer_seconds": 2.0, "least": 3, "quality": "same"}  # fmt: skip
    records.save({"target": "T4d", "seconds": 1.0, "machine": {"versions": {}}, "rows": [row]}, tmp_path)
    page = render.text(render.measured(tmp_path))
    assert "2.0x where 3x was aimed at" in page
    assert "| T4d | svm | letter | LinearSVC | 1.0 s | 2.0 s |" in page


def test_every_line_of_the_readme_has_rows():
    measured = [line for line in readme.LINES if records.load(line.target)]
    missing = [line for line in measured if not readme.found(line)]
    assert not missing, [f"{line.target} {line.data}" for line in missing]


def test_a_job_is_named_once(tmp_path):
    lines = readme.table()[2:]
    jobs = [line.split(" | ")[0].strip("| ") for line in lines]
    named = [job for job in jobs if job]
    assert len(named) == len(set(named)) > 5
    with pytest.raises(ValueError):
        readme.put("no marks here")
