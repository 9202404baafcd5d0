"""What the site is made with: every page is in the menu, every public name in the reference, formulas become MathML."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
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


TERMS = ("regularization", "hyperparameter", "logits", "k-nearest", "overfitting", "calibration")
QUESTIONS = {  # words that a user types into the search box: the heading of the FAQ that answers them
    "add a class without retraining": "How do I add a class without retraining?",
    "index 5 million rows 768": "Which index for 5 million rows of 768 columns?",
    "alpha compared C": "What does alpha mean compared with C?",
    "unknown class": 'How do I predict "unknown" for rows of an unknown class?',
    "export onnx": "Can I export a model to ONNX?",
    "save model without pickle": "How do I save a model without pickle?",
    "gpu out of memory": "What do I do if the GPU is out of memory?",
    "class imbalance": "How do I deal with class imbalance?",
    "regularize more": "My model overfits (high training accuracy, low test accuracy). How do I regularize more?",
    "explain prediction one row": "How do I explain a prediction of one row?",
    "continue training new rows": "How do I continue training with new rows (`partial_fit`)?",
    "kernel svm rbf": 'Is there a kernel SVM, like `SVC(kernel="rbf")`?',
    "data larger than memory": "How do I train on data larger than memory?",
    "limit threads": "How many threads does kway use? How do I limit them?",
    "time limit budget": "What do I get if I press Ctrl-C, or if the time limit (`--budget`) ends?",
    "several machines": "Can kway run on several machines?",
    "classify short texts": "How do I classify short texts?",
    "wrong labels": "How do I find wrong labels?",
    "split time series": "How do I split a time series?",
    "million classes": "How do I work with a million classes?",
    "excel": "Can kway read Excel files?",
    "exclude column": "How do I exclude a column?",
    "cost matrix": "How do I predict with a cost matrix?",
}


def test_the_glossary_has_the_standard_terms():
    glossary = (DOCS / "glossary.md").read_text().lower()
    assert [term for term in TERMS if term not in glossary] == []


@pytest.mark.parametrize("words", QUESTIONS)
def test_the_heading_that_answers_a_question_has_its_words(words):
    heading = QUESTIONS[words]
    assert f"## {heading}\n" in (DOCS / "faq.md").read_text()
    assert set(words.lower().split()) <= set(re.findall(r"\w+", heading.lower()))


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


def test_sections_and_pages_for_users_count_more_in_the_search_box(tmp_path):
    pytest.importorskip("mkdocs")
    hook = tool("site_search")
    boosts = {}
    for path, meta in ("howto/fit.md", {}), ("design.md", {}), ("faq.md", {"search": {"boost": 2}}):
        page = SimpleNamespace(file=SimpleNamespace(src_uri=path), meta=meta)
        hook.on_page_markdown("", page=page)
        boosts[path] = page.meta.get("search", {}).get("boost")
    assert boosts["faq.md"] == 2 > boosts["howto/fit.md"] > 1 > boosts["design.md"]
    (tmp_path / "search").mkdir()
    index = tmp_path / "search" / "search_index.json"
    index.write_text('{"docs": [{"location": "a.html"}, {"location": "a.html#b", "boost": 2}]}')
    hook.on_post_build({"site_dir": str(tmp_path)})
    assert [entry.get("boost") for entry in json.loads(index.read_text())["docs"]] == [None, 2 * hook.SECTION]


def test_cells_of_tables_are_separated_in_the_search_index_only():
    pytest.importorskip("mkdocs")
    mark, restore = tool("site_search").on_page_context.methods
    html = "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td>\n<td>2</td></tr></table>"
    page = SimpleNamespace(content=html)
    mark({}, page=page)
    assert page.content == "<table><tr><th>a |</th><th>b;</th></tr><tr><td>1 |</td>\n<td>2;</td></tr></table>"
    restore({}, page=page)
    assert page.content == html


def test_footnotes_of_docstrings_have_no_marks():
    pytest.importorskip("mkdocs")
    hook, page = tool("site_search"), SimpleNamespace(file=SimpleNamespace(src_uri="reference/trees.md"))
    html = hook.on_page_content("<p>Trees [1]_.</p><p>.. [1] Ke. .. [2] Ho.</p><code>x[1]</code>", page=page)
    assert html == "<p>Trees [1].</p><p>[1] Ke.<br>[2] Ho.</p><code>x[1]</code>"
    assert "]_" not in tool("site_api").names()


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize(
    ("typed", "searched"),
    [
        ("--seed", "seed^4 seed options^4"),
        ("Can I cite this?", "cite^4 cite"),
        ('"predict_proba" -x', "predict^4 predict proba^4 proba"),
        ("regularize classes", "regularize^4 regular classes^4 class"),
        ("how to", "how^4 how to^4 to"),
        ("Ensemble vs. nearest neighbours", "blend^4 blend nearest^4 nearest neighbors^4 neighbor"),
        ("1% positives", "imbalanced^4 imbalanc classes^4 class"),
        ("multi-label", "multilabel^4 multilabel"),
    ],
)
def test_a_typed_query_becomes_words(typed, searched):
    program = (
        "globalThis.window = { Worker: class extends EventTarget { postMessage(m) { console.log(m.data) } } };"
        f"require({json.dumps(str(DOCS / 'javascripts' / 'search-query.js'))});"
        f"new window.Worker().postMessage({{ type: 2, data: {json.dumps(typed)} }});"
    )
    done = subprocess.run(["node", "-e", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == searched


def test_a_page_that_fetches_from_elsewhere_is_refused():
    exceptions = pytest.importorskip("mkdocs.exceptions")
    offline, page = tool("site_offline"), SimpleNamespace(file=SimpleNamespace(src_uri="page.md"))
    own = '<a href="https://example.org">text</a><img src="images/a.png"><script src="assets/a.js"></script>'
    assert offline.on_post_page(own, page=page) == own
    for other in ('<img alt="" src="https://example.org/a.png">', '<script src="https://example.org/a.js"></script>'):
        with pytest.raises(exceptions.PluginError, match="fetches https"):
            offline.on_post_page(other, page=page)
