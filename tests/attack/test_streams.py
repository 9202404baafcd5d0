"""`kway predict MODEL -` and `kway evaluate MODEL -` on what a pipe may bring: as many answers as rows, or one line.

A row that is cut short at the end is still a row; the label that it may leave behind is said to be none of the model's.
"""

import gzip
import io
import sys

import pytest

from kway.cli import run

HEAD, ROWS = b"a,b,y", [b"0.1,1,ant", b"0.3,2,ant", b"5.2,1,bee", b"5.4,3,bee"] * 6
WHOLE = b"\n".join([HEAD, *ROWS]) + b"\n"


def lines(*given):
    return b"\n".join(given) + b"\n"


ANSWERED = {  # content, rows, and what evaluate says, if anything
    "whole": (WHOLE, 24, ""),
    "without an end": (WHOLE[:-1], 24, ""),
    "cut in its last label": (WHOLE[:-3], 24, "1 rows have labels that are not classes of the model ('b')"),
    "of Windows": (WHOLE.replace(b"\n", b"\r\n"), 24, ""),
    "with a mark": (b"\xef\xbb\xbf" + WHOLE, 24, ""),
    "of two bytes a letter": (WHOLE.decode().encode("utf-16"), 24, ""),
    "packed": (gzip.compress(WHOLE), 24, ""),
    "with semicolons": (WHOLE.replace(b",", b";"), 24, ""),
    "with blank lines": (WHOLE.replace(b"\n", b"\n\n"), 24, ""),
    "one row": (lines(HEAD, ROWS[0]), 1, ""),
    "another column": (lines(HEAD + b",z", *(row + b",7" for row in ROWS)), 24, ""),
    "gaps": (lines(HEAD, b",,ant", *ROWS), 25, ""),
    "beyond float64": (lines(HEAD, b"1e999,1e300,ant", *ROWS), 25, ""),
    "new labels": (
        lines(HEAD, b"1,1,emu", b"1,1,fox", *ROWS),
        26,
        "2 rows have labels that are not classes of the model",
    ),
    "JSON": (b'{"a": 0.1, "b": 1, "y": "ant"}\n', 1, ""),
}
REFUSED = {
    "nothing": (b"", "is empty"),
    "a line end": (b"\n", "is empty"),
    "a header": (lines(HEAD), "no rows"),
    "no header": (lines(*ROWS), "no "),
    "other columns": (b"x,z\n1,2\n", "no "),
    "a column less": (lines(*(line.split(b",", 1)[1] for line in (HEAD, *ROWS))), "no feature column 'a'"),
    "words for numbers": (lines(HEAD, b"x,1,ant", b"y,1,ant"), "column 'a' must contain numbers, as in training"),
    "columns twice": (lines(HEAD + b"," + HEAD, *(row + b"," + row for row in ROWS)), "more than one column named"),
    "a quote that stays open": (lines(HEAD, b'"0.1,1,ant'), "cannot be read"),
    "a row too long": (lines(HEAD, b"1," * 9999 + b"ant"), "cannot be read"),
    "half an object": (b'{"a": 0.1', "is not JSON"),
    "no parquet": (b"PAR1 or not", "cannot be read"),
    "half a gzip": (gzip.compress(WHOLE)[:-9], "cannot be read as gzip"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from kway.report import page

    folder = tmp_path_factory.mktemp("streams")
    (folder / "t.csv").write_bytes(WHOLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "write_page", lambda path, *_: open(path, "w").close())
        words = ["fit", str(folder / "t.csv"), "-t", "y", "--model", "centroid", "-o", str(folder / "m.kway")]
        assert run([*words, "--report", str(folder / "r.html")]) == 0
    return str(folder / "m.kway")


@pytest.fixture
def piped(model, monkeypatch, capfd):
    """A verb on what comes through stdin: exit code, stdout and stderr."""

    def call(verb, content, *options):
        stdin = None if content is None else io.TextIOWrapper(io.BytesIO(content))
        capfd.readouterr()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", stdin)
            code = run([verb, model, "-", *options])
        return code, *capfd.readouterr()

    return call


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", ANSWERED)
def test_as_many_answers_as_rows(name, piped):
    content, rows, said = ANSWERED[name]
    code, out, err = piped("predict", content)
    assert (code, err) == (0, "")
    assert out.count("\n") == rows + 1
    assert set(out.split()) <= {'"prediction"', '"ant"', '"bee"'}
    code, out, err = piped("evaluate", content)
    assert code == 0
    assert f"on {rows} rows" in " ".join(out.split())
    assert said in " ".join(err.split()) if said else not err


@pytest.mark.parametrize("verb", ["predict", "evaluate"])
@pytest.mark.parametrize("name", REFUSED)
def test_one_line_says_what_is_wrong(name, verb, piped):
    content, said = REFUSED[name]
    code, out, err = piped(verb, content)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert said in err
    assert "KWAY_TRACEBACK" not in err


def test_closed_streams(model, piped, monkeypatch, capfd):
    for verb in ("predict", "evaluate"):
        assert piped(verb, None)[::2] == (1, "error: stdin is closed; pipe a table into it, or name a file\n")
    monkeypatch.setattr(sys, "stdout", None)
    assert run(["predict", model, "-"]) == 2
    assert capfd.readouterr().err == "error: stdout is closed; give a file with --out\n"
