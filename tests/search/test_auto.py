import numpy as np
import pytest

from kway.errors import InputError, ModelFileError
from kway.search import INDEXES, METRICS, Flat, Gaussian, Haversine, KDTree, choose, pick_index


@pytest.mark.parametrize(
    ("n", "d", "metric", "sparse", "kind"),
    [
        (41_914, 2, Haversine(degrees=True), False, KDTree),
        (50_000, 3, METRICS["euclidean"], False, KDTree),
        (50_000, 3, Gaussian(1.0), False, KDTree),
        (50_000, 3, METRICS["euclidean"], True, Flat),
        (500, 3, METRICS["euclidean"], False, Flat),
        (60_000, 784, METRICS["euclidean"], False, Flat),
        (50_000, 3, METRICS["dot"], False, Flat),
        (50_000, 3, METRICS["hamming"], False, Flat),
    ],
)
def test_choice_is_exact_and_explained(n, d, metric, sparse, kind):
    choice = choose(n, d, metric, sparse)
    assert isinstance(choice.recipe, kind)
    assert choice.recipe.exact
    assert choice.why


@pytest.mark.parametrize("metric", METRICS.values(), ids=str)
@pytest.mark.parametrize("d", [2, 5, 50])
def test_what_is_chosen_can_be_built(metric, d):
    if metric.distance.name == "haversine" and d != 2:
        return
    rows = np.random.default_rng(0).normal(size=(3000, d))
    index = choose(3000, d, metric).recipe.build(rows, metric)
    assert index.nearest(rows[:5], 1).ids.shape == (5, 1)


def test_names_recipes_and_mistakes():
    assert pick_index("kdtree", 10, 2, METRICS["euclidean"]).recipe == KDTree()
    assert pick_index(KDTree(4), 10, 2, METRICS["euclidean"]).recipe == KDTree(4)
    assert set(INDEXES) == {"flat", "landmarks", "kdtree", "lsh", "sharded"}
    with pytest.raises(InputError, match="did you mean 'landmarks'"):
        pick_index("landmark", 10, 2, METRICS["euclidean"])
    with pytest.raises(ModelFileError, match=r"an index of KDTree.*, not of Flat"):
        Flat.restore({"recipe": KDTree()}, {})
