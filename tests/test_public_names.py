"""The public names are a contract: one table, lazily imported, and the same for type checkers."""

import ast
import inspect
import tomllib
from pathlib import Path

import pytest

import kway

ROOT = Path(__file__).parents[1]


def test_all_is_the_table():
    assert set(kway.__all__) == {*kway._HOME, "__version__"}


@pytest.mark.parametrize("name", kway.__all__)
def test_every_name_is_there(name):
    value = getattr(kway, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__name__ == name
        assert value.__doc__
    assert name in dir(kway)
    assert getattr(kway, name) is value


def test_star_import():
    names: dict = {}
    exec("from kway import *", names)
    assert set(kway.__all__) <= set(names)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Softmax'"):
        kway.Softmax  # noqa: B018


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(kway.__file__).read_text())
    block = next(n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    seen = {
        alias.name: "" if node.module == "kway" else node.module.removeprefix("kway.")
        for node in block.body
        for alias in node.names
    }
    assert seen == kway._HOME


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert kway.__version__ == project["version"]
