"""Compare the size and the public names of kway with those stored in tools/structure.json.

    python tools/check_structure.py            exit 1 if there are more modules or lines of code, or other public names
    python tools/check_structure.py --update   store what is there now; give the figures in the commit

Lines of code are lines without blank lines, comments and docstrings. A tuning number is a number assigned at module
level or in the body of a private class, also inside tuples and dicts.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "kway"
STORED = Path(__file__).with_name("structure.json")
PUBLIC = ("kway", "kway.linear", "kway.neighbors", "kway.search", "kway.confidence", "kway.datasets", "kway.errors")


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the line numbers of all docstrings."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False):
            first = node.body[0]
            found.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return found


def count_code_lines(text: str) -> int:
    """Return the lines without blank lines, comments and docstrings."""
    skipped = docstring_lines(ast.parse(text))
    lines = ((number, line.strip()) for number, line in enumerate(text.split("\n"), 1))
    return sum(1 for number, line in lines if line and not line.startswith("#") and number not in skipped)


def count_numbers(value: ast.expr) -> int:
    """Return how many numbers a constant has, also inside tuples and dicts; 0 if it has anything else."""
    if isinstance(value, ast.Tuple | ast.List | ast.Set):
        items = [getattr(item, "value", None) for item in value.elts]
        return 0 if items == list(range(len(items))) else sum(map(count_numbers, value.elts))  # 0, 1, 2: an enumeration
    if isinstance(value, ast.Dict):
        return sum(map(count_numbers, value.values))
    arithmetic = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    other = (str, bytes, bool, type(None))
    nodes = list(ast.walk(value))
    return int(all(isinstance(node, arithmetic) and not isinstance(getattr(node, "value", 0), other) for node in nodes))


def count_tuning_numbers(text: str) -> int:
    """Return the numbers assigned at module level and in the bodies of private classes."""
    tree = ast.parse(text)
    private = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name.startswith("_")]
    assigned = [node for body in [tree.body, *private] for node in body if isinstance(node, ast.Assign | ast.AnnAssign)]
    return sum(count_numbers(node.value) for node in assigned if node.value is not None)


def public_names() -> dict[str, str]:
    """Return every public name with its signature."""
    found: dict[str, str] = {}
    for package in PUBLIC:
        module = importlib.import_module(package)
        for name in sorted(getattr(module, "__all__", [])):
            value = getattr(module, name)
            found[f"{package}.{name}"] = _signature(value)
    return found


def _signature(value: Any) -> str:
    if not callable(value):
        return ""
    try:
        parameters = inspect.signature(value).parameters
    except (TypeError, ValueError):
        return ""
    return ", ".join(parameters)


def measure() -> dict[str, Any]:
    """Return the counts and the public names as they are."""
    texts = [path.read_text() for path in sorted(SOURCE.rglob("*.py"))]
    return {
        "modules": len(texts),
        "lines of code": sum(map(count_code_lines, texts)),
        "tuning numbers": sum(map(count_tuning_numbers, texts)),
        "public names": public_names(),
    }


def compare(found: dict[str, Any], stored: dict[str, Any]) -> list[str]:
    """Return what has grown or changed, one sentence each."""
    limits = [name for name in stored if isinstance(stored[name], int)]
    problems = [f"{name}: {found[name]:,}, stored {stored[name]:,}" for name in limits if found[name] > stored[name]]
    names, known = found["public names"], stored["public names"]
    problems += [f"{name} is a new public name" for name in sorted(set(names) - set(known))]
    problems += [f"{name} is no longer a public name" for name in sorted(set(known) - set(names))]
    changed = sorted(name for name in set(names) & set(known) if names[name] != known[name])
    return problems + [f"{name} takes ({names[name]}), stored ({known[name]})" for name in changed]


def main() -> int:
    """Check, or store with --update."""
    found = measure()
    counts = ", ".join(f"{found[name]:,} {name}" for name in found if isinstance(found[name], int))
    if "--update" in sys.argv[1:]:
        STORED.write_text(json.dumps(found, indent=1) + "\n")
        print(f"stored: {counts}")
        return 0
    problems = compare(found, json.loads(STORED.read_text()))
    print(counts)
    print("\n".join(problems), end="\n" if problems else "")
    if problems:
        print("If this is intended, run python tools/check_structure.py --update and give the figures in the commit.")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
