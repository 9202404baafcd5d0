"""`import kway` and `kway --help` answer at once: nothing heavy is loaded before it is used."""

import os
import resource
import statistics
import subprocess
import sys

import numpy as np
import pytest

import kway

HEAVY = ("numba", "sklearn", "scipy", "numpy", "pyarrow", "pandas", "polars", "matplotlib", "rich", "typer", "torch")


def seconds(*command):
    """Of the processor: what others do on the machine meanwhile does not count."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def extra_seconds(*command, rounds=5):
    """The median above that of starting Python, each taken in turn."""
    pairs = [(seconds("-c", "pass"), seconds(*command)) for _ in range(rounds)]
    return statistics.median(b for _, b in pairs) - statistics.median(a for a, _ in pairs)


def loaded_by(statement):
    code = f"import sys; {statement}; print(*sorted({{m.partition('.')[0] for m in sys.modules}}))"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def test_import_is_quick():
    assert extra_seconds("-c", "import kway") < 0.3


def test_help_is_quick():
    assert extra_seconds("-m", "kway.cli", "--help") < 0.5


def test_help_reads_no_markdown():
    command = [sys.executable, "-X", "importtime", "-m", "kway.cli", "fit", "--help"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "Compare classifiers on DATA" in done.stdout
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "rich.console" in loaded
    assert "markdown_it" not in loaded


def test_the_main_job_begins_without_slow_packages():
    """scikit-learn's metrics and splitters, and with them scipy.stats, were a second before any row was compared."""
    late = (
        "sklearn.model_selection",
        "sklearn.metrics",
        "sklearn.ensemble",
        "scipy.stats",
        "scipy.optimize",
        "matplotlib",
    )
    code = (
        "import sys; from kway import light_imports; light_imports.sklearn_base()\n"
        "import numpy as np, kway.select.job; from kway.select.contest.folds import fold_numbers, split_test\n"
        "codes = np.arange(60) % 3; split_test(codes), fold_numbers(codes)\n"
        f"print(*[name for name in {late!r} if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "\n"


def test_a_first_fit_compiles_few_kernels_and_each_once(tmp_path):
    """Each more costs about a second of a first fit, and so does a second kind of array for the same."""
    code = (
        "import kway; digits = kway.datasets.load('digits'); rows = digits.x_train[:1000].reshape(1000, -1) / 255\n"
        "kway.SoftmaxClassifier(alpha=0.1).fit(rows, digits.y_train[:1000])"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)})
    compiled = sorted(path.name.partition("-")[0] for path in tmp_path.rglob("*.nbc"))
    losses = [f"losses.{name}" for name in ("exponentials", "largest", "softmax_rows", "total")]
    assert compiled == [*losses, "sgd.row_hashes"]


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import kway; dir(kway); kway.errors", set()),
        ("import kway.cli", {"typer", "rich"}),
        ("import kway.store", {"numpy"}),
        ("import kway.datasets", {"numpy"}),
    ],
)
def test_nothing_heavy_is_loaded(statement, allowed):
    assert loaded_by(statement) & set(HEAVY) <= allowed


LATE = ("pandas.core", "matplotlib", "scipy.stats", "scipy.optimize", "sklearn.preprocessing", "sklearn.metrics")


@pytest.fixture
def model_file(tmp_path):
    """A calibrated softmax model behind its features, as the main job saves one, and a file of rows for it."""
    rng = np.random.default_rng(0)
    frame = {"size": rng.normal(size=60), "kind": rng.choice(["a", "b"], 60).tolist()}
    y = np.where(frame["size"] > 0, "large", "small")
    found = kway.fit(frame, y, models=["softmax"], also=())
    found.save(tmp_path / "m.kway")
    (tmp_path / "rows.csv").write_text("size,kind\n1.5,a\n-2.5,b\n")
    return tmp_path / "m.kway"


def test_a_first_prediction_loads_no_more_than_it_needs(model_file):
    """scikit-learn alone would bring scipy.stats and pandas: half of the time until the first answer."""
    code = (
        f"import sys, kway; m = kway.load({str(model_file)!r})\n"
        "import pyarrow.csv\n"
        f"print(*m.predict(pyarrow.csv.read_csv({str(model_file.parent / 'rows.csv')!r})))\n"
        f"print(*[name for name in {LATE!r} if name in sys.modules and name != 'pandas.core'])\n"
        "import pandas, scipy\n"
        "print(*m.predict(pandas.DataFrame({'size': [3.0], 'kind': ['a']})), scipy.stats.mode([1, 1, 2]).mode)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["large small", "", "large 1"], done.stderr


def test_the_command_predicts_without_them(model_file):
    command = [sys.executable, "-X", "importtime", "-m", "kway.cli", "predict", str(model_file)]
    done = subprocess.run([*command, str(model_file.parent / "rows.csv")], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ['"prediction"', '"large"', '"small"']
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "sklearn.base" in loaded
    assert not loaded & set(LATE)


@pytest.mark.parametrize(
    ("model", "late"),
    [
        (kway.SoftmaxClassifier(), ("numba", "narwhals", "scipy.special", "kway.planning", "kway.linear.solvers")),
        (
            kway.NeighborsClassifier(3),
            ("numba", "narwhals", "scipy.linalg", "scipy.spatial", "joblib", "kway.planning"),
        ),
    ],
    ids=lambda part: type(part).__name__,
)
def test_a_model_of_plain_arrays_answers_with_no_more_than_it_needs(model, late, tmp_path):
    """numba alone is half of the time until a first answer; solvers, bounds and the plan are for fits."""
    X, y = np.random.default_rng(0).normal(size=(2000, 9)), np.arange(2000) % 3
    model.fit(X, y).save(tmp_path / "m.kway")
    code = (
        f"import sys, numpy, kway; m = kway.load({str(tmp_path / 'm.kway')!r})\n"
        f"print(*m.predict(numpy.array({X[:4].tolist()})))\n"
        f"print(*[name for name in {late!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [" ".join(map(str, model.predict(X[:4]))), ""], done.stderr


def test_a_placeholder_gives_way_to_the_module():
    code = (
        "import sys; from kway import light_imports as light\n"
        "stands = light._Placeholder('pandas'); sys.modules['pandas'] = stands\n"
        "import pandas; assert pandas is stands\n"
        "print(pandas.DataFrame({'a': [1, 2]})['a'].sum(), sys.modules['pandas'] is stands)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["3", "False"]


def test_scikit_learn_is_whole_behind_its_light_import():
    """What stood for joblib, scipy.linalg and others gives way to them wherever scikit-learn calls them."""
    code = (
        "import kway; kway.load\n"
        "import numpy as np, scipy.sparse as sp\n"
        "from sklearn.linear_model import Ridge; from sklearn.manifold import spectral_embedding\n"
        "from sklearn.model_selection import cross_val_score; from sklearn.pipeline import make_pipeline\n"
        "from sklearn.preprocessing import StandardScaler; from sklearn.utils.extmath import randomized_svd\n"
        "import tempfile; X = np.random.default_rng(0).normal(size=(60, 3)); y = (X[:, 0] > 0).astype(int)\n"
        "memory = make_pipeline(StandardScaler(), kway.SoftmaxClassifier(), memory=tempfile.mkdtemp())\n"
        "print(cross_val_score(memory, X, y, cv=3, n_jobs=2).mean() > 0.8)\n"
        "print(Ridge(solver='sparse_cg').fit(sp.csr_matrix(X), y).coef_.shape, randomized_svd(X, 2)[1].shape)\n"
        "print(spectral_embedding(np.exp(-np.abs(X[:, :1] - X[:, :1].T)), n_components=2).shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["True", "(3,) (2,)", "(60, 2)"], done.stderr


def test_trees_come_without_most_of_scipy():
    """What scikit-learn imported from a placeholder works when it is called, and scipy is whole afterwards."""
    code = (
        "import sys; from kway import light_imports as light\n"
        "light.PROCESS.own = True; light.sklearn_base(); light.sklearn_ensemble()\n"
        "print(*[name for name in (*light._BESIDE_TREES, 'rich.progress') if name in sys.modules])\n"
        "import numpy as np; from sklearn.ensemble import RandomForestClassifier\n"
        "X = np.arange(40.0).reshape(20, 2); y = X[:, 0] > 9\n"
        "print(RandomForestClassifier(3, random_state=0).fit(X, y).score(X, y))\n"
        "from sklearn.metrics import label_ranking_loss; print(label_ranking_loss([[0, 1]], [[0.2, 0.1]]))\n"
        "from sklearn.metrics import label_ranking_average_precision_score as p; print(p([[0, 1]], [[0.2, 0.1]]))\n"
        "from sklearn.preprocessing import SplineTransformer; print(SplineTransformer(3).fit_transform(X).shape)\n"
        "from sklearn.isotonic import check_increasing; print(check_increasing(X[:, 0], X[:, 1]))\n"
        "import scipy.optimize, scipy.spatial.distance as d\n"
        "print(scipy.stats.rankdata([3, 1]), scipy.optimize.linprog.__name__, d.pdist([[0], [2]]))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    expected = ["", "1.0", "1.0", "0.5", "(20, 10)", "True", "[2. 1.] linprog [2.]"]
    assert done.stdout.splitlines() == expected, done.stderr


def test_figures_come_without_formulas_until_one_is_drawn():
    code = (
        "import io, sys; from kway import light_imports as light\n"
        "light.PROCESS.own = True; light.matplotlib_figure()\n"
        "print(*[name for name in ('mpl_toolkits.mplot3d', *light._BESIDE_FIGURES) if name in sys.modules])\n"
        "from matplotlib.figure import Figure; from matplotlib.font_manager import FontProperties\n"
        "figure = Figure(); text = figure.text(0.5, 0.5, 'x'); figure.savefig(io.BytesIO(), format='svg')\n"
        "print('pyparsing' in sys.modules)\n"
        "text.set_text('$x^2$'); figure.savefig(io.BytesIO(), format='svg'); print('pyparsing' in sys.modules)\n"
        "print(FontProperties('serif:bold').get_weight(), str(FontProperties('serif'))[:11])\n"
        "import mpl_toolkits.mplot3d as three; print(three.Axes3D.name)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["", "False", "True", "bold serif:style", "3d"], done.stderr


def test_figures_are_drawn_alike_without_the_help_that_matplotlib_writes():
    draw = (
        "import hashlib; from kway.report.curves import history; from kway.report.export import svg_document\n"
        "print(hashlib.sha256(svg_document(history({'a': [3.0, 2.0, 1.5], 'b': [2.5, 1.0]}))).hexdigest())\n"
        "from matplotlib.lines import Line2D; from matplotlib import artist\n"
        "line = Line2D([0], [0]); line.set(lw=3, color='red'); print(line.get_linewidth(), line.get_color())\n"
        "class Own(Line2D, artist.Artist): pass\n"
        "print(len(artist.kwdoc(Own)) > 1000, artist.getp(line, 'lw'))\n"
    )
    own = "from kway import light_imports as light; light.PROCESS.own = True; light.matplotlib_figure()\n"
    whole, light = (
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.splitlines()
        for code in (draw, own + draw + "print(Line2D.set.__doc__)")
    )
    assert light == [*whole, "None"]


def test_garbage_is_looked_for_again_once_all_is_imported():
    code = (
        "import gc; from kway import light_imports as light; frozen = gc.get_freeze_count()\n"
        "with light.uncollected(): print(gc.isenabled(), gc.get_freeze_count() - frozen)\n"  # somebody else's process
        "light.PROCESS.own = True\n"
        "with light.uncollected():\n"
        "    with light.uncollected(): print(gc.isenabled())\n"
        "    print(gc.isenabled())\n"
        "print(gc.isenabled(), gc.get_freeze_count() > frozen + 1000)\n"
        "gc.disable()\n"
        "with light.uncollected(): pass\n"
        "print(gc.isenabled())"  # as the caller had it
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["True 0", "False", "False", "True True", "False"], done.stderr
