"""Every folder's docstring is a map: whoever adds a module says there what it is."""

import ast
import re
from pathlib import Path

import pytest
from tools.house import MAP, PAGE, drawn_into, listed

import kway

ROOT = Path(kway.__file__).parent
FOLDERS = sorted(init.parent for init in ROOT.rglob("__init__.py"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT.parent)))
def test_every_module_is_on_the_map_of_its_folder(folder):
    said = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    modules = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("__")}
    rooms = {path.parent.name for path in folder.glob("*/__init__.py") if path.parent.name != "benchmarks"}
    assert not {name for name in modules | rooms if not re.search(rf"\b{name}\b", said)}


def test_every_room_is_in_the_picture_of_the_design_page():
    page = (ROOT.parents[1] / "docs" / "design.md").read_text()
    rooms = {str(folder.relative_to(ROOT)) for folder in FOLDERS if folder != ROOT}
    assert not {room for room in rooms if f"`{room}`" not in page and f">{room}<" not in page}


def test_the_picture_shows_the_house_as_it_is():
    assert drawn_into(PAGE.read_text()) == PAGE.read_text(), "run python -m tools.house"


def test_every_module_is_on_the_page_of_modules():
    assert listed() == MAP.read_text(), "run python -m tools.house"
    assert all(f"- `{path.stem}`: " in MAP.read_text() for path in ROOT.rglob("[!_]*.py"))


# one word in two rooms where it is one concept: a verb of the command line and what it calls, what users know under two
# public names of one word, a distance and the number that kernels know it by, a check of parameters and of model files
SHARED = {"compare", "explain", "fit", "info", "plan", "app"} | {"load", "save", "reliability", "Cosine"}
SHARED |= {"EUCLIDEAN", "MANHATTAN", "COSINE", "DOT", "HAMMING"} | {"one_of", "whole"}


def defined(tree):
    """Names that a module's own statements bind: functions, classes, and constants, several at once among them."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in getattr(node, "targets", None) or [node.target]:
                yield from (item.id for item in ast.walk(target) if isinstance(item, ast.Name))


def test_no_public_name_is_defined_twice():
    homes = {}
    for path in ROOT.rglob("*.py"):
        for name in set(defined(ast.parse(path.read_text()))):
            if not name.startswith("_"):
                homes.setdefault(name, []).append(path.relative_to(ROOT))
    assert {name: found for name, found in homes.items() if len(found) > 1 and name not in SHARED} == {}
    assert {name for name in SHARED if len(homes[name]) == 1} == set()
