"""What the site is made with: every page is in the menu, every public name in the reference, formulas become MathML."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.main import get_command

import kway
from kway.cli import app

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_menu():
    menu = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert menu == {str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md")}


def test_every_public_name_is_in_the_reference():
    shown = set(re.findall(r"^::: kway\.([\w.]+)", "\n".join(p.read_text() for p in DOCS.rglob("*.md")), re.MULTILINE))
    last = {name.split(".")[-1] for name in shown}
    assert set(kway.__all__) - {"__version__"} <= last
    assert set(kway.search.__all__) <= last
    assert set(kway.datasets.__all__) <= last


def test_the_command_page_holds_every_verb_and_option():
    commands = tool("site_commands")
    page = commands.on_page_markdown((DOCS / "reference" / "cli.md").read_text())
    verbs = dict(commands.verbs(get_command(app)))
    assert {"kway fit", "kway predict", "kway data list"} <= set(verbs)
    for name, command in verbs.items():
        assert f"\n## {name}\n" in page
        for parameter in command.params:
            assert all(f"`{option}" in page for option in parameter.opts if option.startswith("-"))


def test_formulas_become_mathml():
    pytest.importorskip("latex2mathml")
    shown = tool("site_math").on_page_content(
        '<p><span class="arithmatex">\\(a &lt; b\\)</span></p>\n<div class="arithmatex">\\[\n\\frac{1}{n}\n\\]</div>'
    )
    assert shown.count("<math") == 2
    assert 'display="inline"' in shown
    assert 'display="block"' in shown
    assert "<mfrac>" in shown
    assert "arithmatex" not in shown


def test_a_page_that_fetches_from_elsewhere_is_refused():
    exceptions = pytest.importorskip("mkdocs.exceptions")
    offline, page = tool("site_offline"), SimpleNamespace(file=SimpleNamespace(src_uri="page.md"))
    own = '<a href="https://example.org">text</a><img src="images/a.png"><script src="assets/a.js"></script>'
    assert offline.on_post_page(own, page=page) == own
    for other in ('<img alt="" src="https://example.org/a.png">', '<script src="https://example.org/a.js"></script>'):
        with pytest.raises(exceptions.PluginError, match="fetches https"):
            offline.on_post_page(other, page=page)
