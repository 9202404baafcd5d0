"""The README's table, made from the records: its lines cannot say what was not measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .race import WITH_FIT, Row
from .records import FOLDER, about, figure_text, load, short, whole_of, wholes

BEGIN, END = "<!-- this table is made by python -m benchmarks.render -->\n\n", "\n<!-- end of the table -->\n"
HEAD = ("| job | data | kway | peer | ratio | fit + predict |", "|---|---|---|---|---|---|")
BRIEF = {
    "scikit-learn-intelex": "its Intel build",
    "intelex LogisticRegression": "its Intel build",
    "LogisticRegression(lbfgs)": "scikit-learn",
    "LogisticRegression(saga)": "saga",
    "LinearSVC(hinge)": "LinearSVC",
    "GridSearchCV(KNeighborsClassifier)": "GridSearchCV",
}


@dataclass(frozen=True)
class Line:
    """Rows of one target, job and set that stand in one line."""

    job: str
    data: str
    target: str
    where: str  # the set's name in the records, or how it begins
    work: str = ""  # what the job's name in the records contains


LINES = (  # a few of each kind, the poorest among them; docs/benchmarks/index.md has them all
    Line("exact L2, all test rows, k = 5", "MNIST, 60,000 x 784", "T1", "mnist"),
    Line("", "Fashion-MNIST", "T1b", "fashion_mnist"),
    Line("", "CLINC150 embeddings", "T1b", "clinc150"),
    Line("", "GloVe, 100 features", "T1b", "glove100"),
    Line("exact L1, 1,000 queries", "MNIST", "T2", "mnist"),
    Line("exact cosine", "CLINC150 embeddings", "T2b", "clinc150"),
    Line("approximate, votes as exact on 99.8 %", "MNIST", "T3", "mnist", "approximate"),
    Line("exact or approximate, recall@5 >= 0.99", "MNIST", "T3b", "mnist"),
    Line("one query, median", "MNIST", "T7", "mnist", "p50"),
    Line("softmax, alpha 1e-4, same objective", "MNIST", "T4", "mnist", "softmax"),
    Line("", "Banking77 embeddings", "T4b", "banking77"),
    Line("", "letter, standardised", "T4b", "letter, standardised"),
    Line("softmax, L1 penalty", "MNIST, 20,000 rows", "T4c", "mnist"),
    Line("one-vs-all SVM", "MNIST", "T4d", "mnist"),
    Line("softmax, 10 alphas x 5 folds", "Banking77 embeddings", "T5", "banking77"),
    Line("k = 1..50 x 3 votes x 5 folds (grid: a tenth timed, x 10)", "MNIST, 20,000 rows", "T6", "mnist"),
)


def table(folder: Path = FOLDER) -> list[str]:
    """The lines, head and what the marks mean included; what was not measured at the same quality is left out."""
    lines = list(HEAD)
    said = ""  # a job named once serves the lines below it
    marks: dict[str, str] = {}  # the first way of measuring has none, the second *, ...
    for line in LINES:
        said = line.job or said
        rows = found(line, folder)
        if rows:
            first = said if not any(said == text.split(" | ")[0][2:] for text in lines) else ""
            mark = marks.setdefault(_measured_by(line, folder), "\\*" * len(marks))
            lines.append(_line(first, line.data, mark, rows, _whole(line, rows, folder)))
    return [*lines, "", "; ".join(f"{mark or 'No mark'}: {way}" for way, mark in marks.items()) + "."]


def _measured_by(line: Line, folder: Path) -> str:
    """The version and the kind of machine that a line's figures are of."""
    machine = (load(line.target, folder) or {}).get("machine", {})
    version = machine.get("versions", {}).get("kway", "of an unknown version")
    return f"kway {version} on a CPU {'with' if machine.get('avx512_vnni', True) else 'without'} AVX-512"


def found(line: Line, folder: Path = FOLDER) -> list[Row]:
    """The rows that a line is made of."""
    record = load(line.target, folder) or {"rows": []}
    return [
        r
        for r in record["rows"]
        if about(r, line.where) and line.work in r.job and r.equal and not r.missing and r.peer != "limit"
        and not r.job.startswith(WITH_FIT)
    ]  # fmt: skip


def _whole(line: Line, rows: list[Row], folder: Path) -> str:
    """The same with the build counted: kway's time, then the ratios in the order of the peers."""
    records = [load(target, folder) or {"rows": []} for target in (line.target, "T1f")]
    known = wholes(r for record in records for r in record["rows"])
    both = [whole_of(r, known) for r in rows]
    if not any(both):
        return ""
    times = sorted(r.kway_seconds for r in both if r is not None)
    ratios = ", ".join("-" if r is None else f"{short(r.ratio)}x" for r in both)
    return f"{figure_text(times[len(times) // 2], 's')}: {ratios}"


def _line(job: str, data: str, mark: str, rows: list[Row], whole: str) -> str:
    """One line: kway's time (the same race, or several), each peer with its time, and the ratios."""
    times = sorted(r.kway_seconds for r in rows)
    ours = figure_text(times[len(times) // 2], "s")  # each peer has a race of its own, so kway may have several times
    theirs = ", ".join(f"{BRIEF.get(r.peer, r.peer)} {figure_text(r.peer_seconds, 's')}" for r in rows)
    return f"| {job} | {data} | {ours}{mark} | {theirs} | {', '.join(f'{short(r.ratio)}x' for r in rows)} | {whole} |"


def put(text: str, folder: Path = FOLDER) -> str:
    """The README with the table of today between its two marks."""
    before, rest = text.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    return before + BEGIN + "\n".join(table(folder)) + "\n" + END + after
