"""Check the docstrings of all public classes, functions and methods; they are in numpydoc form.

    python tools/check_docstrings.py          exit 1 if a docstring does not fit its signature

Parameters names exactly the parameters of the signature, in any order. A function that returns something has Returns or
Yields. Fields of a NamedTuple or a dataclass may be listed under Attributes instead. Exceptions need a sentence only.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from numpydoc.docscrape import FunctionDoc

sys.path.insert(0, str(Path(__file__).parent))
from check_structure import PUBLIC


def public_objects() -> Iterator[tuple[str, Any]]:
    """Yield every public class and function and the public methods of the classes, each once, by its full name."""
    seen: set[str] = set()
    for package in PUBLIC:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                for found, thing in [(_full_name(value), value), *_methods(value)]:
                    if found.startswith("kway") and found not in seen:
                        seen.add(found)
                        yield found, thing


def _full_name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _methods(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the public methods of a class that kway defines, also in its bases."""
    for base in value.__mro__ if inspect.isclass(value) else ():
        for name, member in vars(base).items():
            member = getattr(member, "__func__", getattr(member, "fn", member))  # class methods, available_if
            if not name.startswith("_") and inspect.isfunction(member) and not inspect.isclass(member):
                yield _full_name(member), member


def find_problems(value: Any) -> list[str]:
    """Return what is wrong with one docstring, one sentence each."""
    text = inspect.getdoc(value) if not inspect.isclass(value) else vars(value).get("__doc__")
    if not text or not text.strip():
        return ["has no docstring"]
    if inspect.isclass(value) and issubclass(value, Exception):
        return []
    doc = FunctionDoc(None, doc=inspect.cleandoc(text))
    expected = _parameters(value)
    named = _names(doc["Parameters"])
    if _is_record(value) and not named:
        named = _names(doc["Attributes"]) & expected
    if _takes_any(value) and named - expected:
        named, expected = set(), set()  # `**options` are described by their own names
    problems = []
    if missing := sorted(expected - named):
        problems.append(f"does not describe {', '.join(missing)}")
    if extra := sorted(named - expected):
        problems.append(f"describes {', '.join(extra)}, which the signature does not have")
    if not inspect.isclass(value) and _returns(value) and not (doc["Returns"] or doc["Yields"]):
        problems.append("has no Returns")
    return problems


def _parameters(value: Any) -> set[str]:
    try:
        found = inspect.signature(value).parameters
    except (TypeError, ValueError):
        return set()
    return {name for name in found if name not in ("self", "cls")}


def _takes_any(value: Any) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(value).parameters.values())


def _names(section: list[Any]) -> set[str]:
    """Return the names of a section; "X, y : array" is two, "**options" is "options"."""
    return {name.strip().lstrip("*") for item in section for name in item.name.split(",") if name.strip()}


def _is_record(value: Any) -> bool:
    return inspect.isclass(value) and (is_dataclass(value) or hasattr(value, "_fields"))


def _returns(value: Any) -> bool:
    return inspect.signature(value).return_annotation not in (None, "None", inspect.Signature.empty)


def main() -> int:
    """Print the docstrings that fail."""
    found = {name: find_problems(value) for name, value in public_objects()}
    wrong = {name: problems for name, problems in sorted(found.items()) if problems}
    for name, problems in wrong.items():
        print(f"{name} {'; '.join(problems)}")
    print(f"{len(found)} public docstrings, {len(wrong)} wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
