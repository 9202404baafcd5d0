"""The table of one command against tuned rivals: who takes which rows, what is compared, what the page says."""

import numpy as np
import pytest

from benchmarks.jobs import main_job
from benchmarks.models.tuned_rivals import RIVALS, Tuning

FEW = Tuning((1.0, 10.0), 2, 50, (1, 3), (0.2, 1.0), (0.2,), 10)


def line(**accuracies):
    return {name: {"model": name, "accuracy": a, "error": 0.01, "seconds": 1.0, "setting": "s"}
            for name, a in accuracies.items()}  # fmt: skip


def test_kway_is_held_against_the_best_rival():
    assert main_job.best_rival(line(kway=0.9, logistic=0.8, boosting=0.95)) == "boosting"
    assert not main_job.holds(line(kway=0.9, logistic=0.8, boosting=0.95))
    assert main_job.holds(line(kway=0.9, logistic=0.8, boosting=0.905))


def test_the_page_names_the_best_and_lists_all():
    record = {"sets": {"letter": line(kway=0.9, logistic=0.8, boosting=0.95)}, "machine": {"cpu": "C", "cores": 2}}
    page = main_job.page(record)
    assert "| letter | 90.00 ± 1.00 | kway (s) | 1 | boosting | 95.00 ± 1.00 | 1 | worse (" in page
    assert "neighbors, svm, forest not measured" in page
    assert page.index("| letter | boosting |") < page.index("| letter | logistic |")


def test_trees_are_for_tables_and_letters_for_texts():
    wanted = {plan.data: set(plan.rivals()) for plan in main_job.PLANS}
    assert {"boosting", "forest", "svm", "logistic", "neighbors"} == wanted["letter"]
    assert {"svm", "svm-letters", "bayes", "bayes-letters", "logistic", "neighbors"} == wanted["banking77"]


@pytest.mark.slow
@pytest.mark.parametrize("name", RIVALS)
def test_every_rival_learns(name):
    rng = np.random.default_rng(0)
    y = np.arange(240) % 2
    if "table" in RIVALS[name].kinds:
        plan = main_job.Plan("made up", "table", FEW)
        X = y[:, None] + 0.3 * rng.normal(size=(240, 3))
    else:
        plan = main_job.Plan("made up", "text", FEW)
        X = np.array([f"{('sun', 'snow')[c]} and {('sea', 'hill')[c]} {rng.integers(9)}" for c in y], object)
    found = main_job.race(plan, name, main_job.Parts(X[:160], y[:160], X[160:], y[160:]))
    assert found.accuracy > 0.9
    assert "tried" in found.setting
