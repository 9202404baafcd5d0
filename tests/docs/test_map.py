"""The map of the lecture documents: no section is missing, and every lesson, module and test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.test_links import slug

ROOT = Path(__file__).parents[2]
MAP = ROOT / "docs" / "map.md"
ROW = re.compile(r"^\| ([^|]+) \| \[[^\]]+\]\(([^)]+)\) \| `([^`]+)` \| `([^`]+)` \|$", re.MULTILINE)
ROWS = ROW.findall(MAP.read_text())

# a phrase of every section of the five documents, in their order
SECTIONS = """
examples|linear regression|one-hot|softmax function|cross-entropy|model formulation|chain rule|stochastic gradient descent
largest score|parameters against classes|find and vote|set k|similarity|votes|naive algorithm|post office|vector quantization
kd-tree|locality-sensitive|huge number|matrix multiplication|c or fortran|blas|lapack
wrong digit|one-hot encoding, softmax|which class wins|gradient|sgd algorithm|parameters against classes
supervised learning|memorize|456|o(n)|decision boundaries|l1 and l2|hyperparameters|pixels|features of a network|captions
exemplar|linear classifier|empirical loss|bias trick|closed form|outliers|sigmoid|full batch|sgd for logistic|separable
perceptron|margin|sgd update for svm|general recipe|l2 regularization|l1 regularization|summary of sgd|one-vs-all
softmax and sigmoid|sgd with cross-entropy|overflow
rules 0 and 1|implementations of the sigmoid|logistic regression|maximum of each row|broadcasting|two loops, one loop|all digits
general recipe|one-vs-all|cat, dog, ship|multi-class svm|softmax, sigmoid|sgd with cross-entropy|against cross-entropy
overflow|temperature|label smoothing
""".replace("\n", "|").strip("|").split("|")


def test_no_section_is_missing():
    names = [section.lower() for section, *_ in ROWS]
    assert len(names) == len(SECTIONS)
    for name, phrase in zip(names, SECTIONS):
        assert phrase in name


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_the_lesson_the_code_and_the_test_exist(row):
    _, link, code, test = row
    page, _, anchor = link.partition("#")
    lesson = MAP.parent / page
    headings = re.findall(r"^#+ (.*)$", lesson.read_text(), re.MULTILINE)
    assert not anchor or anchor in {slug(heading.replace("*", "")) for heading in headings}
    folder = ROOT if code.startswith(("benchmarks", "tools")) else ROOT / "src" / "kway"
    assert (folder / code).is_file()
    assert (ROOT / "tests" / test).is_file()
