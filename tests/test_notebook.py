"""A real notebook: results are HTML tables, progress is an HTML bar, and text from strangers is escaped."""

import nbformat
import pytest

import kway
from kway.progress import News, in_notebook, progress_html

pytestmark = pytest.mark.filterwarnings("ignore")  # of the notebook's own libraries

CELLS = [
    "import numpy as np, kway, warnings\n"
    "rng = np.random.default_rng(0)\n"
    "X = rng.normal(size=(200, 3))\n"
    "y = np.where(X[:, 0] + 0.5 * rng.normal(size=200) > 0, '<script>bad</script>', 'good')\n"
    "table = {'<b>a</b>': X[:, 0], 'b': X[:, 1], 'c': X[:, 2], 'kind': y}",
    "found = kway.fit(table, target='kind', models=['softmax', 'centroid'], also=())\nfound",
    "found.leaderboard",
    "found.explain()",
    "kway.SoftmaxClassifier().fit(X, y).predict_topk(X, 2)",
    "kway.TreesClassifier(n_trees=5).fit(X, y).explain(X[:3])",
    "kway.plan(n_samples=1e6, n_features=100, n_classes=10)",
    "kway.SoftmaxClassifier(verbose=1).fit(X, y);",
    "kway.fit(X, [['<i>x', 'y'] if v else [] for v in X[:, 0] > 0], multilabel=';')",
]


@pytest.fixture(scope="module")
def outputs():
    """The HTML and the other outputs of each cell."""
    from nbclient import NotebookClient

    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in CELLS])
    NotebookClient(book, timeout=120, kernel_name="python3").execute()
    return [cell.outputs for cell in book.cells]


def html_of(cell):
    return "".join(out["data"].get("text/html", "") for out in cell if "data" in out)


def test_results_are_tables(outputs):
    for place in (1, 2, 3, 4, 5, 6, 8):
        assert html_of(outputs[place]).count("<table>") == 1, CELLS[place]
    assert "Contributions" in html_of(outputs[5])
    assert "Advised" in html_of(outputs[6])
    assert "micro F1" in html_of(outputs[8])


def test_nothing_is_printed_as_a_warning(outputs):
    assert not [out for cell in outputs for out in cell if out["output_type"] in ("stream", "error")]


def test_progress_is_a_bar_that_a_finished_job_removes(outputs):
    assert "<progress" in html_of(outputs[7])
    assert "SoftmaxClassifier" in html_of(outputs[7])
    assert "<progress" not in html_of(outputs[1])
    assert sum("text/html" in out.get("data", {}) for out in outputs[1]) == 2  # the removed bar, and the result


def test_text_of_strangers_is_escaped(outputs):
    everything = "".join(html_of(cell) for cell in outputs)
    for text in ("<script>", "<b>a", "<i>x"):
        assert text not in everything
    assert "&lt;script&gt;" in everything


def test_a_report_as_html():
    news = News("<what>", 30, 10, lines=(("<a>", "0.5"),))
    assert progress_html(news, 3700.0) == (
        '<div><progress value="1.0000"></progress> 1:01:40 &lt;what&gt;<br>&lt;a&gt;  0.5</div>'
    )


def test_a_terminal_is_no_notebook(capsys):
    assert not in_notebook()
    kway.compare([[0.0], [1.0], [0.1], [1.1]] * 5, [0, 1] * 10, ["centroid"])
    assert capsys.readouterr().out == ""
