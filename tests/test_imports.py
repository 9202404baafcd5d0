"""Nothing heavy is loaded before it is used.

These tests look at modules and at compiled kernels rather than at seconds, which depend on what else the machine does.
"""

import os
import resource
import subprocess
import sys

import pytest

HEAVY = {"numba", "sklearn", "scipy", "numpy", "pyarrow", "pandas", "polars", "matplotlib", "rich", "typer", "torch"}


def run_python(*arguments, **environment):
    """Run Python and return the finished process; it must succeed."""
    return subprocess.run(
        [sys.executable, *arguments], check=True, capture_output=True, text=True, env={**os.environ, **environment}
    )


def loaded_by(statement):
    """The top-level packages that are loaded after a statement."""
    code = f"import sys; {statement}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(run_python("-c", code).stdout.split())


def cpu_seconds(code):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run_python("-c", code)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import kway; dir(kway); kway.errors", set()),
        ("import kway.cli", {"typer", "rich"}),
        ("import kway.modelfile", {"numpy"}),
        ("import kway.datasets", {"numpy", "pyarrow", "pandas"}),  # it reads tables; pyarrow loads pandas
    ],
)
def test_nothing_heavy_is_loaded(statement, allowed):
    assert loaded_by(statement) & HEAVY <= allowed


def test_help_loads_nothing_of_the_work():
    done = run_python("-X", "importtime", "-m", "kway", "fit", "--help")
    assert "Find the best classifier for DATA" in done.stdout
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not loaded & (HEAVY - {"typer", "rich"})


def test_import_is_quick():
    """At most 0.1 s of the processor above Python's own start: the least of five, as other work can only add to it."""
    assert min(cpu_seconds("import kway") for _ in range(5)) - min(cpu_seconds("pass") for _ in range(5)) < 0.1


def test_a_prediction_loads_no_solver_and_no_figure(tmp_path):
    code = (
        "import sys, kway, numpy as np\n"
        "X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 3\n"
        f"path = {str(tmp_path / 'm.kway')!r}\n"
        "if sys.argv[1] == 'fit': kway.SoftmaxClassifier().fit(X, y).save(path)\n"
        "else: kway.load(path).predict(X); print(*sys.modules)"
    )
    run_python("-c", code, "fit")
    loaded = set(run_python("-c", code, "predict").stdout.split())
    assert "sklearn.base" in loaded
    assert not loaded & {"matplotlib", "kway.linear.solvers", "kway.planning", "kway.auto", "kway.report"}


def test_a_first_fit_compiles_few_kernels_and_each_once(tmp_path):
    """Each kernel costs about a second of a first fit, and so does a second type of array for the same kernel."""
    code = (
        "import kway; digits = kway.datasets.load('digits'); rows = digits.x_train[:1000].reshape(1000, -1) / 255\n"
        "kway.SoftmaxClassifier(alpha=0.1).fit(rows, digits.y_train[:1000])"
    )
    run_python("-c", code, NUMBA_CACHE_DIR=str(tmp_path))
    compiled = sorted(path.name.partition("-")[0] for path in tmp_path.rglob("*.nbc"))
    losses = [f"losses.{name}" for name in ("exponentials", "largest", "softmax_rows", "total")]
    assert compiled == [*losses, "sgd.row_hashes"]
