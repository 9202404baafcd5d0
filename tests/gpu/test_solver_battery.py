"""Every loss, penalty and solver on a device: the CPU's optimum, or a sentence that says what to use instead."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from kway.errors import CombinationError  # noqa: E402
from kway.linear import LinearClassifier  # noqa: E402
from kway.linear import plan as planning  # noqa: E402
from kway.linear.losses import LOSSES  # noqa: E402
from kway.linear.penalties import pick_penalty  # noqa: E402
from kway.linear.solvers.base import list_properties  # noqa: E402
from kway.linear.solvers.registry import SOLVERS  # noqa: E402
from kway.rows.gpu.device import ChosenDevice, Device  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")]

NAME = "cuda" if torch.cuda.is_available() else "cpu"
ALPHA = 1e-2
SHAPES = [(2, "joint"), (4, "joint"), (4, "one-vs-all")]
PROBLEMS = list(itertools.product(LOSSES, ["l2", "l1", "elasticnet"], SHAPES))


@pytest.fixture(autouse=True)
def _some_device(monkeypatch):
    def resolve(device, pays=True):
        return ChosenDevice(None, "") if device == "cpu" else ChosenDevice(Device(NAME), "on the GPU")

    monkeypatch.setattr(planning, "resolve", resolve)


def blobs(K, n=150, d=5):
    rng = np.random.default_rng(0)
    y = rng.integers(0, K, n)
    return rng.standard_normal((K, d))[y] + rng.standard_normal((n, d)), y  # classes overlap: every optimum is finite


@pytest.mark.parametrize("solver", ["lbfgs", "proximal", "sgd"])
@pytest.mark.parametrize(("loss", "penalty", "shape"), PROBLEMS)
def test_a_fit_there_ends_where_a_fit_here_does_or_both_are_refused(loss, penalty, shape, solver):
    K, multiclass = shape
    given = {"loss": loss, "penalty": penalty, "alpha": ALPHA, "solver": solver, "multiclass": multiclass}
    given |= {"max_iter": 15 if solver == "sgd" else 300, "batch_size": 10, "random_state": 0, "tol": 1e-4}
    found = {}
    for device in ("cpu", "cuda"):
        try:
            found[device] = LinearClassifier(device=device, **given).fit(*blobs(K))
        except CombinationError as error:
            found[device] = error
    here, there = found["cpu"], found["cuda"]
    form = LOSSES[loss].columns if K == 2 or multiclass == "one-vs-all" else LOSSES[loss].joint
    offered = list_properties(form, pick_penalty(penalty, 0.5).times(ALPHA), frozenset())
    if isinstance(there, CombinationError):
        assert isinstance(here, CombinationError) or not SOLVERS[solver].needs <= offered
        assert "use solver='auto'" in str(there) or "device='cpu'" in str(there)
        return
    assert SOLVERS[solver].needs <= offered
    slack = 0.05 if loss.startswith("softmax-") else 2e-3  # those are not convex: rounding may lead elsewhere
    assert there.objective_ <= here.objective_ * (1 + slack) + 1e-6
    assert there.score(*blobs(K)) == pytest.approx(here.score(*blobs(K)), abs=0.05)


@pytest.mark.parametrize("solver", ["dual", "least-squares"])
@pytest.mark.parametrize(("penalty", "instead"), [("l2", "lbfgs"), ("l1", "proximal")])
def test_solvers_of_the_host_name_what_is_used_there(solver, penalty, instead):
    with pytest.raises(CombinationError, match=f"use solver='{instead}' or 'auto', or device='cpu'"):
        LinearClassifier("logistic", penalty, solver=solver, device="cuda").fit(*blobs(3))


def test_auto_picks_one_that_works_there():
    for loss, penalty, (K, multiclass) in PROBLEMS:
        model = LinearClassifier(loss, penalty, ALPHA, multiclass=multiclass, device="cuda", max_iter=3)
        assert model.fit(*blobs(K, 60)).solver_ in ("lbfgs", "proximal", "sgd")
