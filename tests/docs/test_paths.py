"""Files, folders and modules that pages and docstrings name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "docs", "tests", "benchmarks", "examples", "tools", ".ci")
NAMES = ["/" + str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
NAMES += ["/" + path.name for path in ROOT.iterdir()]
IN_PAGE = re.compile(r"`([\w.\-]*[a-z][\w.\-]*/[\w.\-/]*|[\w\-]+\.py)`")
IN_SOURCE = re.compile(r"(?<![\w/.*{-])((?:\w+/)*\w+\.py)\b")
MODULE = re.compile(r"\bkway(?:\.[a-z]\w*)+")
ELSEWHERE = {"kway.cu", "kway.yaml", "kway.search.metrics"}  # generated, the reader's, of 0.1.0
LABELS = {"animal"}  # first levels of labels that look like paths


def missing(text: str, path: re.Pattern[str]) -> list[str]:
    """Return the paths and modules that a text names and that do not exist."""
    paths = {
        name
        for name in path.findall(text)
        if name.split("/")[0] not in LABELS
        and not any(f"{known}/".endswith(f"/{name.rstrip('/')}/") for known in NAMES)
    }
    return sorted(paths | {name for name in set(MODULE.findall(text)) - ELSEWHERE if not has(name)})


def has(dotted: str) -> bool:
    """Whether the dotted name leads to a module, or to a name that a package has."""
    place = ROOT / "src"
    for part in dotted.split("."):
        if (place / f"{part}.py").is_file():
            return True
        if not (place / part).is_dir():
            names = rf'"{part}"|^(?:def|class|from|import|{part} =).*\b{part}\b'
            return re.search(names, (place / "__init__.py").read_text(), re.MULTILINE) is not None
        place /= part
    return True


@pytest.mark.parametrize("page", sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")}), ids=lambda p: p.stem)
def test_what_a_page_names_is_there(page):
    assert missing(page.read_text(), IN_PAGE) == []


def test_what_the_sources_name_is_there():
    found = {str(path.relative_to(ROOT)): missing(path.read_text(), IN_SOURCE) for path in ROOT.glob("src/**/*.py")}
    assert {path: names for path, names in found.items() if names} == {}


def test_what_is_not_there_is_found():
    text = "`linear/solvers/gone.py` `auto/calibration.py` kway.search.gone kway.search.Flat kway.auto.job.run_job"
    assert missing(text, IN_PAGE) == ["kway.search.gone", "linear/solvers/gone.py"]
