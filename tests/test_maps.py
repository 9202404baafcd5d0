"""The docstring of a folder lists its modules: every one, and none that the folder does not have."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src"
FOLDERS = sorted(path.parent for path in ROOT.glob("kway/**/__init__.py"))
NAME = r"[a-z_]\w*(?:\.py|/)?"
CELL = re.compile(rf"{NAME}(?:, {NAME})*")  # one name, or several with commas between them
FILE = re.compile(r"(?<![\w/.])(\w+(?:\.py\b|/(?!\w)))")  # a name that says by itself that it is a file or a folder


def listed(text: str) -> set[str]:
    """Return the names that a docstring lists: the cells of its lines, except the last one, and files anywhere."""
    cells = [cell for line in text.splitlines() for cell in re.split(r" {2,}", line.strip())[:-1]]
    in_cells = {name for cell in cells if CELL.fullmatch(cell) for name in cell.split(", ")}
    return in_cells | set(FILE.findall(text))


def modules(folder: Path) -> set[str]:
    """Return the names of the modules and packages of a folder."""
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    return files | {path.parent.name for path in folder.glob("*/__init__.py")}


def exists(folder: Path, name: str) -> bool:
    """Return whether the folder has the file NAME.py, the folder NAME/, or either for a bare name."""
    stem = name.removesuffix(".py").removesuffix("/")
    is_file = not name.endswith("/") and (folder / f"{stem}.py").is_file()
    return is_file or (not name.endswith(".py") and (folder / stem).is_dir())


def differences(folder: Path, text: str) -> tuple[list[str], list[str]]:
    """Return the names that are listed but do not exist, and the modules that are not listed."""
    names = listed(text)
    stems = {name.removesuffix(".py").removesuffix("/") for name in names}
    return sorted(name for name in names if not exists(folder, name)), sorted(modules(folder) - stems)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_the_docstring_of_a_folder_lists_its_modules(folder):
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    assert differences(folder, text) == ([], [])


def test_stale_and_missing_names_are_found():
    text = "Costs.\n\ncosts.py   formulas, see rows/passes.py\nspeed      rates\nplan/      a folder"
    assert differences(ROOT / "kway" / "planning", text) == (["plan/", "speed"], ["rates"])
