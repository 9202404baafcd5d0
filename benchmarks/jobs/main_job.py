"""The main job against scikit-learn: `kway fit DATA` without options, and tuned rivals on the same rows.

python -m benchmarks.jobs.main_job                                all data sets, all rivals (tuned_rivals.py): hours
python -m benchmarks.jobs.main_job --only letter --what boosting  one of them; other stored results stay
python -m benchmarks.jobs.main_job --smoke                        a few rows of each, nothing is written
python -m benchmarks.jobs.main_job --page                         write the page again from the stored results

Writes benchmarks/results/main_job.json and docs/benchmarks/main_job.md. For the rivals, tables are standardized, texts
become TF-IDF, embeddings are used as they are, and pixels are divided by 255.

Training and test rows are split as kway itself splits them. The standard error is that of an accuracy on the test rows.
kway `holds` a data set if it is at most one standard error below the best rival.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import datasets, machine
from ..child import as_installed
from ..models.tuned_rivals import RIVALS, Rival, Tuning, words
from ..race import Row

RESULT = Path(__file__).parents[1] / "results" / "main_job.json"
PAGE = Path(__file__).parents[2] / "docs" / "benchmarks" / "main_job.md"
FEW_KS = (1, 3, 5, 8, 12)  # numbers of neighbors for large data, where a search of all rows takes a minute
SMOKE = 1500  # rows


class Plan(NamedTuple):
    """A dataset, the kind of its rows, and the limits of the tuning of the rivals."""

    data: str
    rows: str  # table, text, unit or pixels
    tuning: Tuning = Tuning()
    left_out: tuple[str, ...] = ()  # rivals that would take an hour

    def rivals(self) -> list[str]:
        """Return the names of the rivals that accept this kind of rows."""
        return [name for name, rival in RIVALS.items() if self.rows in rival.kinds and name not in self.left_out]


_TEXTS = Tuning((10.0, 100.0), 3, 50, FEW_KS)
PLANS = (
    Plan("letter", "table"),
    Plan("covertype_15k", "table"),
    Plan("shuttle", "table"),
    Plan("banking77_minilm", "unit", Tuning((1.0, 10.0, 100.0), 3, 100, FEW_KS)),
    Plan("clinc150_minilm", "unit", Tuning((1.0, 10.0, 100.0), 3, 100, FEW_KS)),
    Plan("banking77", "text", _TEXTS, ("logistic-letters",)),
    Plan("clinc150", "text", _TEXTS, ("logistic-letters",)),
    Plan("omniglot", "pixels", Tuning((0.01, 0.1), 2, 20, FEW_KS), ("svm",)),
)


@dataclass
class Entry:
    """The result of one contestant on one data set."""

    model: str
    accuracy: float
    error: float  # one standard error
    seconds: float
    setting: str


class Parts(NamedTuple):
    """Training rows X with labels y, and test rows Q with labels yq."""

    X: Any
    y: np.ndarray
    Q: Any
    yq: np.ndarray


def kway_job(data: str) -> Entry:
    """Run `kway fit` in its own process, and return its result on the test rows."""
    as_installed()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "kway", "fit", data, "--json"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    setting = ", ".join(f"{k} {v}" for k, v in report["setting"].items())
    return entry(report["best"], report["test"]["accuracy"], report["test"]["rows"], report["seconds"], setting)


def entry(model: str, accuracy: float, n: int, seconds: float, setting: str) -> Entry:
    """Return an entry with the standard error of an accuracy on n rows."""
    return Entry(model, accuracy, float(np.sqrt(accuracy * (1 - accuracy) / n)), round(seconds, 1), setting)


def read(plan: Plan, max_rows: int | None = None) -> Parts:
    """Return training and test rows as kway splits them; at most about `max_rows` of each, evenly spaced."""
    from kway.auto.train_test import read_train_test

    parts = read_train_test(plan.data)
    X, Q = parts.rows, parts.test_rows
    if plan.rows == "text":
        X, Q = (np.array(rows.column("text").to_pylist(), object) for rows in (X, Q))
    steps = [1 if max_rows is None else max(1, len(y) // max_rows) for y in (parts.y, parts.test_y)]
    train, test = (slice(None, None, step) for step in steps)
    return Parts(X[train], parts.y[train], Q[test], parts.test_y[test])


def prepare_rows(plan: Plan, rival: Rival, parts: Parts) -> Parts:
    """Prepare the rows for a rival as a careful user of scikit-learn would."""
    from sklearn.preprocessing import StandardScaler

    if plan.rows in ("unit", "pixels"):
        scale = np.float32(255 if plan.rows == "pixels" else 1)
        return parts._replace(X=parts.X.astype(np.float32) / scale, Q=parts.Q.astype(np.float32) / scale)
    transformer = StandardScaler() if plan.rows == "table" else words(rival.view == "letters")
    return parts._replace(X=transformer.fit_transform(parts.X), Q=transformer.transform(parts.Q))


def race(plan: Plan, name: str, parts: Parts) -> Entry:
    """Measure one rival on one dataset."""
    rival = RIVALS[name]
    start = time.perf_counter()
    rows = prepare_rows(plan, rival, parts)
    tuned = rival.tune(rows.X, rows.y, plan.tuning)
    seconds = time.perf_counter() - start
    accuracy = float(np.mean(tuned.model.predict(rows.Q) == rows.yq))
    return entry(rival.title, accuracy, len(rows.yq), seconds, tuned.setting)


def measure(plan: Plan, what: tuple[str, ...] = (), smoke: bool = False) -> dict[str, Any]:
    """Measure the named contestants, or all, on one dataset."""
    results: dict[str, Any] = {}
    if not smoke and (not what or "kway" in what):
        results["kway"] = asdict(kway_job(plan.data))
    chosen = [name for name in plan.rivals() if not what or name in what]
    if chosen:
        parts = read(plan, SMOKE if smoke else None)
        results |= {name: asdict(race(plan, name, parts)) for name in chosen}
    return results


def best_rival(line: dict[str, Any]) -> str:
    """Return the name of the most accurate rival."""
    return max((name for name in RIVALS if name in line), key=lambda name: line[name]["accuracy"])


def holds(line: dict[str, Any]) -> bool:
    """Return whether kway is at least as accurate as the best rival, within one standard error of its accuracy."""
    best = line[best_rival(line)]["accuracy"]
    return bool(line["kway"]["accuracy"] >= best - line["kway"]["error"])


def page(record: dict[str, Any]) -> str:
    """Return the page with the tables."""
    measured = {name: line for name, line in record["sets"].items() if "kway" in line and set(line) & set(RIVALS)}
    lines = [
        "# One command against tuned classifiers",
        "",
        "`kway fit DATA` without options, compared with classifiers of scikit-learn (*rivals*). Each rival is tuned",
        "by cross-validation on the same training rows. The rivals are linear models and nearest neighbors, for tables",
        "also trees, and for texts complement naive Bayes. Texts are TF-IDF of words, or of words and letters.",
        "",
        "Accuracies are in percent, with one standard error on the test rows. The time of kway is that of the whole",
        "command: it compares families, refits, calibrates and tests the best one, and writes model and report.",
        "kway counts as *equal or better* if it is at most one standard error below the best rival.",
        "",
        "| data | kway | chosen model | seconds | best rival | accuracy | seconds | result |",
        "|---|---|---|---|---|---|---|---|",
        *(_verdict(name, line) for name, line in measured.items()),
        "",
        "All rivals, with the settings that cross-validation chose:",
        "",
        "| data | rival | accuracy | seconds | setting |",
        "|---|---|---|---|---|",
        *(row for name, line in measured.items() for row in _rival_rows(name, line)),
    ]
    computer = record["machine"]
    cores = f"{computer.get('cpu', 'this machine')}, {computer.get('cores', '?')} cores"
    note = f"Measured on {cores}. {record.get('note', '')}"
    return "\n".join([*lines, "", note.strip(), "`python -m benchmarks.jobs.main_job` repeats the measurements.", ""])


def _verdict(name: str, line: dict[str, Any]) -> str:
    ours, theirs = line["kway"], line[best_rival(line)]
    missing = [rival for plan in PLANS if plan.data == name for rival in plan.rivals() if rival not in line]
    mark = "equal or better" if holds(line) else "worse"
    if missing:
        mark += f" ({', '.join(missing)} not measured)"
    chosen = f"{ours['model']} ({ours['setting']})"
    cells = [name, _share(ours), chosen, _seconds(ours), theirs["model"], _share(theirs), _seconds(theirs), mark]
    return f"| {' | '.join(cells)} |"


def _rival_rows(name: str, line: dict[str, Any]) -> list[str]:
    entries = sorted((line[rival] for rival in RIVALS if rival in line), key=lambda e: -e["accuracy"])
    return [f"| {name} | {e['model']} | {_share(e)} | {_seconds(e)} | {e['setting']} |" for e in entries]


def _share(e: dict[str, Any] | None) -> str:
    return "–" if e is None else f"{100 * e['accuracy']:.2f} ± {100 * e['error']:.2f}"


def _seconds(e: dict[str, Any] | None) -> str:
    return "–" if e is None else f"{e['seconds']:.0f}"


def main_job(rounds: int, quick: bool) -> list[Row]:
    """Return one row per data set, kway against the best rival, for the runner of the benchmarks.

    There is one round, which takes minutes per data set.
    """
    rows = []
    for plan in PLANS[:2] if quick else PLANS:
        line = measure(plan)
        ours, theirs = line["kway"], line[best_rival(line)]
        quality = f"{ours['accuracy']:.4f} against {theirs['accuracy']:.4f} (± {ours['error']:.4f})"
        rows.append(
            Row("JOB", "the main job", plan.data, theirs["model"], ours["seconds"], theirs["seconds"], None, quality,
                holds(line), {"kway": [ours["seconds"]], theirs["model"]: [theirs["seconds"]]})
        )  # fmt: skip
    return rows


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[plan.data for plan in PLANS])
    parser.add_argument("--what", nargs="+", choices=("kway", *RIVALS), default=[])
    parser.add_argument("--smoke", action="store_true", help="a few rows, no kway, nothing written")
    parser.add_argument("--page", action="store_true", help="only write the page from the stored results")
    chosen = parser.parse_args()
    if datasets.folder() is None:
        print("KWAY_DATA is not set; set it to the folder of the data sets", file=sys.stderr)
        return 1
    for plan in () if chosen.page else PLANS:
        if chosen.only is None or plan.data in chosen.only:
            results = measure(plan, tuple(chosen.what), chosen.smoke)
            print(plan.data, {name: (e["model"], round(e["accuracy"], 4), e["seconds"]) for name, e in results.items()})
            if not chosen.smoke:
                store(plan.data, results)
    if not chosen.smoke:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(page(json.loads(RESULT.read_text())))
    return 0


def store(data: str, results: dict[str, Any]) -> None:
    """Add the results of a data set to the stored record."""
    record = json.loads(RESULT.read_text()) if RESULT.exists() else {"sets": {}}
    record["sets"].setdefault(data, {}).update(results)
    record |= {"target": "JOB", "machine": machine.facts()}
    RESULT.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
