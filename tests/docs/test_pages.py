"""The code of the pages runs and prints what they show: each page is one program, run in an empty folder.

    ```python   runs; all such blocks of a page share their names; warnings are errors
    ```text     directly after a block that runs: its output ("..." matches anything, spaces do not matter)
    ```bash     runs, with `kway` on the PATH

A block below the line `<!-- not run -->` is not run. Below `<!-- numbers vary -->`, the numbers of an output
may differ by a fifth, and times by any factor. All pages below docs/ are tested.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest

from kway.linear.losses import LOSSES
from kway.neighbors import VOTES
from kway.search import INDEXES, METRICS

pytestmark = pytest.mark.pages

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
FENCE = re.compile(
    r"(?P<skip>^ *<!-- not run -->\n+)?^(?P<pad> *)```(?P<lang>[^\n]*)\n(?P<body>.*?)^(?P=pad)```$",
    re.MULTILINE | re.DOTALL,
)
VARY = re.compile(r"<!-- numbers vary -->\n+$")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
TIME = re.compile(rf"(?:{NUMBER.pattern}) ?(?:µs|ms|s|min|h)\b")
LANGUAGES = {"python", "bash", "text", "json", "toml", "make", "html", "yaml"}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    """A fenced block that runs, and the output that the page shows (None: the page shows none)."""

    language: str
    source: str
    line: int
    printed: str | None
    varies: bool = False  # whether the numbers of the output may differ a little


def blocks(text: str) -> list[Block]:
    """Return the blocks of a page that run."""
    found: list[Block] = []
    end = None  # of the last block, if it runs
    for fence in FENCE.finditer(text):
        language, body = fence["lang"], textwrap.dedent(fence["body"])
        line = text[: fence.start("body")].count("\n")
        assert language in LANGUAGES, f"line {line}: ```{language} is not one of {sorted(LANGUAGES)}"
        between = "" if end is None else text[end : fence.start()]
        varies = bool(VARY.search(between))
        directly = end is not None and not VARY.sub("", between).strip()
        end = None
        if fence["skip"]:
            continue
        if language == "text" and directly:
            found[-1] = found[-1]._replace(printed=body, varies=varies)
        elif language in ("python", "bash"):
            found.append(Block(language, body, line, None))
            end = fence.end()
    return found


def same_output(block: Block, printed: str) -> bool:
    """Return whether a program printed what the page shows."""
    shown = block.printed or ""
    if doctest.OutputChecker().check_output(shown, printed, FLAGS) or not block.varies:
        return bool(doctest.OutputChecker().check_output(shown, printed, FLAGS))
    shown, printed = (TIME.sub("TIME", text) for text in (shown, printed))
    words = [" ".join(NUMBER.sub("#", text).split()) for text in (shown, printed)]
    pairs = zip(*([float(number.replace(",", "")) for number in NUMBER.findall(text)] for text in (shown, printed)))
    return words[0] == words[1] and all(abs(a - b) <= 0.2 * max(abs(a), abs(b)) for a, b in pairs)


def run_python(block: Block, page: Path, names: dict) -> str:
    code = compile("\n" * block.line + block.source, str(page), "exec")  # tracebacks name the page's own lines
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, names)
    return out.getvalue()


def run_bash(block: Block, page: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.source], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{page}:{block.line}\n{block.source}\n{done.stderr}"
    return done.stdout


@pytest.fixture(autouse=True)
def _tables_as_before():
    """Remove what a page added to the tables of kway."""
    before = [(table, dict(table)) for table in (INDEXES, LOSSES, METRICS, VOTES)]
    yield
    for table, entries in before:
        table.clear()
        table.update(entries)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT / "docs").with_suffix("")))
def test_every_block_runs_and_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KWAY_DATA", raising=False)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "100"}
    names: dict = {"__name__": "__main__"}
    for block in blocks(page.read_text()):
        run = {"python": lambda b: run_python(b, page, names), "bash": lambda b: run_bash(b, page, environment)}
        printed = run[block.language](block)
        if block.printed is not None:
            assert same_output(block, printed), f"{page}:{block.line} shows\n{block.printed}\nbut it printed\n{printed}"


def test_a_wrong_output_is_detected():
    text = "```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n\n<!-- not run -->\n```bash\nrm -rf x\n```\n"
    (block,) = blocks(text)
    assert block == Block("python", "print(1 + 1)\n", 1, "3\n")
    printed = run_python(block, Path("page.md"), {})
    assert not same_output(block, printed)
    assert not same_output(block._replace(varies=True), printed)


def test_numbers_that_vary_may_differ_by_a_fifth():
    (block,) = blocks("```python\nprint(1)\n```\n\n<!-- numbers vary -->\n```text\n1,000 rows in 2.5 s: 0.91\n```\n")
    assert block.varies
    assert same_output(block, "1,100 rows in 90 ms: 0.89\n")
    for other in ("1,300 rows in 2.5 s: 0.91", "1,000 queries in 2.5 s: 0.91", "1,000 rows in 2.5 s: 0.5"):
        assert not same_output(block, other)


def test_text_after_prose_is_not_an_output():
    (block,) = blocks("```python\nx = 1\n```\n\nA file:\n\n```text\na,b\n```\n")
    assert block.printed is None
    with pytest.raises(AssertionError, match="notest"):
        blocks("```bash notest\nls\n```\n")
