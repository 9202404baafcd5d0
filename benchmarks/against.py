"""`python -m benchmarks ROW --against CHECKOUT`: kway of this checkout against kway of another one.

Both checkouts do the same work, each in a process of its own that imports kway from its own `src`. The processes take
turns (A B A B ...), one run each, so that a slow phase of the machine affects both. The medians, their ratio and the
quality of both results are printed. The cases use only public names of kway, because the modules of the other checkout
may differ. ROWS has one function per row of the targets.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import kway

from . import datasets
from .jobs.linear import hinge_objective, softmax_objective

ROOT = Path(__file__).parents[1]
K = 5


class Case(NamedTuple):
    """Work to time: `prepare` returns the function to time, and one that describes the quality of its result."""

    name: str
    prepare: Callable[[], tuple[Callable[[], Any], Callable[[Any], str]]]


class Pair(NamedTuple):
    """Seconds of both checkouts on one case per round, and the quality of their last results."""

    case: str
    ours: list[float]
    theirs: list[float]
    our_quality: str
    their_quality: str

    @property
    def ratio(self) -> float:
        """Return their seconds divided by ours; above 1 this checkout is faster."""
        return median(self.theirs) / median(self.ours)

    def line(self) -> str:
        """Return the result as one line of text."""
        same = self.our_quality == self.their_quality
        quality = self.our_quality if same else f"{self.our_quality} against {self.their_quality}"
        times = f"{median(self.ours):.4g} s against {median(self.theirs):.4g} s"
        return f"{self.case}: {times}, {self.ratio:.2f}x; {quality}"

    def record(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {**self._asdict(), "ratio": round(self.ratio, 3)}


def compare(row: str, other: Path, rounds: int, quick: bool, tell: Callable[[str], None]) -> list[Pair]:
    """Time every case of a row in both checkouts, in turns."""
    with _child(ROOT, row, quick) as ours, _child(other, row, quick) as theirs:
        pairs = []
        for case in ours.cases:
            if case not in theirs.cases:
                tell(f"{case}: the other checkout cannot do it")
                continue
            runs = [(ours.run(case), theirs.run(case)) for _ in range(rounds + 1)][1:]  # the first run compiles
            seconds = [[side["seconds"] for side in both] for both in zip(*runs)]
            last = runs[-1]
            pairs.append(Pair(case, seconds[0], seconds[1], last[0]["quality"], last[1]["quality"]))
            tell(pairs[-1].line())
        return pairs


class _Child:
    """A process that runs the cases of a row with kway of one checkout, one per request."""

    def __init__(self, process: subprocess.Popen[str], checkout: Path) -> None:
        self._process, self._checkout = process, checkout
        hello = self._answer()
        if Path(hello["kway"]).parents[2] != checkout:
            raise RuntimeError(f"kway was imported from {hello['kway']}, not from {checkout}")
        self.cases: list[str] = hello["cases"]

    def run(self, case: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(case + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of {self._checkout} ended; its message is above")
        return json.loads(line)


@contextlib.contextmanager
def _child(checkout: Path, row: str, quick: bool) -> Iterator[_Child]:
    checkout = checkout.resolve()
    path = os.pathsep.join([str(checkout / "src"), str(ROOT)])
    command = [sys.executable, "-m", "benchmarks.against", row, str(int(quick))]
    process = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        yield _Child(process, checkout)
    finally:
        process.communicate()  # the child ends when its stdin closes


def serve(row: str, quick: bool) -> None:
    """Run in the child: read the name of a case per line, run it once, and print seconds and quality."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of the work must not mix with the results
    datasets.limit(datasets.Limit(rows=1500, queries=500) if quick else None)
    cases = {case.name: case for case in ROWS[row]()}
    print(json.dumps({"kway": kway.__file__, "cases": list(cases)}), file=out, flush=True)
    name, run, quality = "", None, None
    for line in sys.stdin:
        if line.strip() != name:
            run = quality = None  # free the rows of the last case
            name = line.strip()
            run, quality = cases[name].prepare()
        start = time.perf_counter()
        answer = run()
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds, "quality": quality(answer)}), file=out, flush=True)


def ids_digest(ids: Any) -> str:
    """Return a digest that is equal exactly if all ids are equal."""
    return f"ids {zlib.crc32(np.ascontiguousarray(ids, np.int64).tobytes()):08x}"


def _search(data: datasets.Data, metric: str = "euclidean", index: Any = "flat", build: bool = False) -> Case:
    """Time kneighbors of all queries, or fit and kneighbors."""

    def prepare() -> tuple[Callable[[], Any], Callable[[Any], str]]:
        make = lambda: kway.NeighborsClassifier(K, metric=metric, index=index).fit(data.X, data.y)  # noqa: E731
        model = None if build else make()
        return lambda: (model or make()).kneighbors(data.Q)[1], ids_digest

    return Case(f"{'fit + ' if build else ''}search, {metric}, {data.name}", prepare)


def _fit(name: str, data: datasets.Data, make: Callable[[], Any], objective: Callable[[Any], float]) -> Case:
    """Time one fit; its quality is the objective."""
    quality = lambda model: f"objective {objective(model):.6f}"  # noqa: E731
    return Case(f"{name}, {data.name}", lambda: (lambda: make().fit(data.X, data.y), quality))


def _softmax(data: datasets.Data, alpha: float, penalty: str = "l2", **more: Any) -> Case:
    return _fit(
        f"softmax {penalty}, alpha {alpha:g}", data,
        lambda: kway.SoftmaxClassifier(penalty, alpha, **more),
        lambda model: softmax_objective(model, data.X, data.y, alpha, penalty),
    )  # fmt: skip


def _svm(data: datasets.Data, alpha: float) -> Case:
    return _fit(
        f"one-vs-all SVM, alpha {alpha:g}", data,
        lambda: kway.SVMClassifier(alpha=alpha, multiclass="one-vs-all", fit_intercept=False),
        lambda model: hinge_objective(model, data.X, data.y, alpha),
    )  # fmt: skip


def _tune(name: str, data: datasets.Data, estimator: Any) -> Case:
    return Case(
        f"tune {name}, {data.name}",
        lambda: (lambda: kway.tune(estimator, data.X, data.y), lambda found: f"accuracy {found.accuracy:.4f}"),
    )


def _process(name: str, *arguments: str, quality: Callable[[str], str] = lambda said: "-", cold: bool = False) -> Case:
    """Time a Python process; `cold` empties the kernel cache first."""

    def run() -> str:
        with tempfile.TemporaryDirectory() as folder:
            env = {**os.environ, "NUMBA_CACHE_DIR": folder} if cold else None
            command = [sys.executable, *arguments]
            return subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder, env=env).stdout

    return Case(name, lambda: (run, quality))


def exact_others() -> list[datasets.Data]:
    """Return the datasets of T1b."""
    sets = [datasets.images("fashion_mnist"), datasets.images("omniglot")]
    return [*sets, datasets.embeddings("clinc150"), datasets.embeddings("banking77"), datasets.glove()]


def l1_cases() -> list[Case]:
    data = datasets.images("mnist")
    return [_search(data._replace(Q=data.Q[:1000], yq=data.yq[:1000]), "manhattan")]


def softmax_sets() -> list[datasets.Data]:
    """Return the datasets of T4b."""
    sets = [datasets.embeddings("banking77"), datasets.embeddings("clinc150"), datasets.letter()]
    return [*sets, datasets.images("fashion_mnist")]


def svm_cases() -> list[Case]:
    return [_svm(data, 1e-4) for data in (datasets.images("mnist"), datasets.letter(), datasets.texts("banking77"))]


def wide_cases() -> list[Case]:
    sets = [datasets.wide(60, 10_000), datasets.wide(300, 20_000)]
    return [
        case for data in sets for alpha in (1e-2, 1e-4, 1e-6) for case in (_softmax(data, alpha), _svm(data, alpha))
    ]


def one_query_cases() -> list[Case]:
    """T7: a thousand queries, one at a time, with Flat and with Landmarks."""
    data = datasets.images("mnist")

    def case(index: str, recipe: Any) -> Case:
        def prepare() -> tuple[Callable[[], Any], Callable[[Any], str]]:
            built, rows = recipe.build(data.X), data.Q[:1000]
            return lambda: np.vstack([built.search(rows[i : i + 1], K).ids for i in range(len(rows))]), ids_digest

        return Case(f"1,000 single queries, {index}, {data.name}", prepare)

    return [case("flat", kway.search.Flat()), case("landmarks", kway.search.Landmarks())]


FIT_AND_SAVE = """
import sys, kway
digits = kway.datasets.load("digits")
X, y = digits.x_train.reshape(len(digits.x_train), -1) / 255, digits.y_train
kway.SoftmaxClassifier(alpha=1e-2).fit(X, y).save(sys.argv[1])
kway.NeighborsClassifier(5).fit(X, y).save(sys.argv[2])
"""
FIRST_PREDICTION = "import sys, numpy, kway; print(*kway.load(sys.argv[1]).predict(numpy.zeros((1, 784))))"
FIRST_FIT = """
import kway
digits = kway.datasets.load("digits")
X = digits.x_train.reshape(len(digits.x_train), -1) / 255
print(kway.SoftmaxClassifier().fit(X, digits.y_train).score(X, digits.y_train))
"""


def start_cases() -> list[Case]:
    """T8: start of whole processes."""
    folder = Path(tempfile.mkdtemp())
    models = {name: str(folder / f"{name}.kway") for name in ("softmax", "neighbors")}
    subprocess.run([sys.executable, "-c", FIT_AND_SAVE, *models.values()], check=True)
    return [
        _process("import kway", "-c", "import kway"),
        _process("kway --help", "-m", "kway", "--help"),
        *(_process(f"first prediction, {n}", "-c", FIRST_PREDICTION, m, quality=str.strip) for n, m in models.items()),
        _process("first fit, empty kernel cache", "-c", FIRST_FIT, quality=str.strip, cold=True),
    ]


def job_cases() -> list[Case]:
    """T11: `kway fit` on the datasets of T11."""

    def accuracy(said: str) -> str:
        found = json.loads(said)
        return f"accuracy {found['test']['accuracy']:.4f}, {found['best']}"

    names = ["digits"]
    if datasets.folder() is not None:
        names += ["clinc150", "banking77", "clinc150_minilm", "omniglot", "letter"]
    return [_process(f"kway fit {name}", "-m", "kway", "fit", name, "--json", quality=accuracy) for name in names]


def one_row_cases() -> list[Case]:
    """T12: ten thousand predictions of one row."""

    def prepare() -> tuple[Callable[[], Any], Callable[[Any], str]]:
        data = datasets.stand_in("one row")
        model, row = kway.SoftmaxClassifier(alpha=1e-2).fit(data.X, data.y), data.Q[:1]
        return lambda: [model.predict(row) for _ in range(10_000)][-1], lambda label: f"class {label[0]}"

    return [Case("10,000 predictions of one row", prepare)]


def bits_cases() -> list[Case]:
    """C1 with fewer classes: codes of one bit for rows of unit length, and 64 noisy copies as queries."""

    def prepare() -> tuple[Callable[[], Any], Callable[[Any], str]]:
        rng, n = np.random.default_rng(0), 20_000 if datasets.limited() else 1_000_000
        rows = rng.standard_normal((n, 512), np.float32)
        wanted = rng.integers(0, n, 64)
        queries = 0.6 * rows[wanted] + 0.8 * rng.standard_normal((64, 512), np.float32)
        built = kway.search.Flat(store=kway.search.Bits(1, rerank=False)).build(rows, metric="cosine")
        return lambda: built.search(queries, 1).ids, lambda ids: f"right {np.mean(ids[:, 0] == wanted):.3f}"

    return [Case("64 queries, codes of one bit", prepare)]


def gpu_search_cases() -> list[Case]:
    """G1 through the classifier, with the rows in GPU memory."""

    def case(d: int) -> Case:
        def prepare() -> tuple[Callable[[], Any], Callable[[Any], str]]:
            import torch

            generator = torch.Generator("cuda").manual_seed(0)
            n, q = (100_000, 1000) if datasets.limited() else (10_000_000 * 128 // d, 10_000)
            rows, queries = (torch.randn(m, d, device="cuda", generator=generator) for m in (n, q))
            built = kway.search.Flat(device="cuda").build(rows)
            return lambda: built.search(queries, 10).ids, lambda ids: ids_digest(np.asarray(ids.cpu()))

        return Case(f"exact search on the GPU, {d} columns", prepare)

    return [case(d) for d in (128, 384, 768)]


def gpu_softmax_cases() -> list[Case]:
    """G2 through the classifier: softmax of many classes on the GPU."""

    def prepare() -> tuple[Callable[[], Any], Callable[[Any], str]]:
        rng, n_classes = np.random.default_rng(0), 1000 if datasets.limited() else 100_000
        means = rng.standard_normal((n_classes, 256), np.float32)
        y = np.arange(4 * n_classes) % n_classes
        X = means[y] + 0.5 * rng.standard_normal((len(y), 256), np.float32)
        make = lambda: kway.SoftmaxClassifier(alpha=1e-6, max_iter=5, device="cuda", random_state=0)  # noqa: E731
        return lambda: make().fit(X, y), lambda model: f"accuracy {model.score(X[:2000], y[:2000]):.3f}"

    return [Case("softmax of many classes on the GPU", prepare)]


def _landmark_cases() -> list[Case]:
    """T3: search, and the build of the index over a million rows."""
    images, many = datasets.images("mnist"), datasets.smooth_clusters(1_000_000)
    build = Case(
        f"build of landmarks, {many.name}",
        lambda: (lambda: kway.search.Landmarks().build(many.X), lambda built: ids_digest(built.search(many.Q, K).ids)),
    )
    return [_search(images, index=kway.search.Landmarks()), _search(many, index=kway.search.Landmarks()), build]


def _some_mnist() -> datasets.Data:
    return datasets.some(datasets.images("mnist"), 20_000)


ROWS: dict[str, Callable[[], list[Case]]] = {
    "T1": lambda: [_search(datasets.images("mnist"))],
    "T1b": lambda: [_search(data) for data in exact_others()],
    "T1f": lambda: [_search(data, build=True) for data in (datasets.images("mnist"), *exact_others()[:3])],
    "T2": l1_cases,
    "T2b": lambda: [_search(datasets.embeddings(name), "cosine") for name in ("clinc150", "banking77")],
    "T3": _landmark_cases,
    "T4": lambda: [_softmax(datasets.images("mnist"), 1e-4)],
    "T4b": lambda: [_softmax(data, 1e-4) for data in softmax_sets()],
    "T4c": lambda: [_softmax(_some_mnist(), 1e-3, "l1")],
    "T4d": svm_cases,
    "T4e": wide_cases,
    "T5": lambda: [_tune("alpha", data, kway.SoftmaxClassifier()) for data in (_some_mnist(), softmax_sets()[0])],
    "T6": lambda: [_tune("k and vote", _some_mnist(), kway.NeighborsClassifier())],
    "T7": one_query_cases,
    "T8": start_cases,
    "T11": job_cases,
    "T12": one_row_cases,
    "C1": bits_cases,
    "G1": gpu_search_cases,
    "G2": gpu_softmax_cases,
}

if __name__ == "__main__":
    serve(sys.argv[1], bool(int(sys.argv[2])))
