import numpy as np
import pytest
from scipy.sparse import csr_array

from kway.errors import InputError
from kway.report.confusion import confusion_matrix, confusion_order, row_shares, worst_pairs


def counts_of(k, seed=0):
    rng = np.random.default_rng(seed)
    return np.diag(rng.integers(10, 20, k)) + rng.binomial(1, 2 / k, (k, k))


@pytest.mark.parametrize("k", [2, 10, 20])
def test_every_count_is_written_in_its_cell(k):
    counts = counts_of(k)
    axes = confusion_matrix(counts).axes[0]
    written = {(round(t.get_position()[1]), round(t.get_position()[0])): int(t.get_text()) for t in axes.texts}
    assert written == {(t, p): counts[t, p] for t, p in zip(*np.nonzero(counts))}


def test_colours_are_shares_of_the_true_class():
    counts = counts_of(10)
    diagonal, rest = (image.get_array() for image in confusion_matrix(counts).axes[0].images)
    share = counts / counts.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(diagonal.compressed(), np.diag(share))
    np.testing.assert_allclose(rest.compressed(), share[~np.eye(10, dtype=bool)])


def test_names_are_shown_up_to_forty_classes():
    names = [f"class {i}" for i in range(40)]
    axes = confusion_matrix(counts_of(40), names).axes[0]
    assert [t.get_text() for t in axes.get_yticklabels()] == names
    assert axes.texts
    assert not confusion_matrix(100 * counts_of(40), names).axes[0].texts  # counts of more digits would touch


def test_at_150_classes_the_worst_pairs_are_listed():
    counts = counts_of(150)
    counts[3, 140], counts[77, 12] = 60, 50
    names = [f"n{i}" for i in range(150)]
    axes, beside, *_ = confusion_matrix(counts, names).axes
    listed = [t.get_text() for t in beside.texts]
    assert listed[0] == "n3\n→ n140"
    assert listed[2] == "n77\n→ n12"
    assert listed[1] == f"60\n{60 / counts[3].sum():.0%}"
    wrong = counts * (1 - np.eye(150, dtype=int))
    assert len(axes.collections[0].get_offsets()) == np.count_nonzero(wrong)


def test_clusters_come_back_as_blocks():
    rng = np.random.default_rng(0)
    groups = rng.permutation(np.repeat(np.arange(15), 4))  # 60 classes, confused within their group only
    counts = np.where(groups[:, None] == groups[None, :], 5, 0) + 30 * np.eye(60, dtype=int)
    ordered = groups[confusion_order(counts)]
    assert np.count_nonzero(np.diff(ordered)) == 14


def test_the_order_is_a_permutation_also_without_mistakes():
    for k in (1, 2, 3, 50):
        assert sorted(confusion_order(np.eye(k, dtype=int))) == list(range(k))


def test_of_thousands_of_classes_the_most_mistaken_are_drawn():
    k = 5000
    rows, columns = np.arange(k), np.arange(k)
    mistaken = np.arange(4000, 4100)
    wrong = csr_array((np.full(100, 9), (mistaken, mistaken + 500)), shape=(k, k))
    figure = confusion_matrix(csr_array((np.full(k, 3), (rows, columns)), shape=(k, k)) + wrong)
    assert len(figure.axes[0].collections[0].get_offsets()) == 100
    assert any("4,800 more are not drawn" in t.get_text() for t in figure.texts)


def test_classes_without_rows_do_not_divide_by_zero():
    counts = counts_of(10)
    counts[4] = 0
    assert (confusion_matrix(counts).axes[0].images[1].get_array()[4] == 0).all()


@pytest.mark.parametrize("bad", [np.ones((2, 3)), np.ones(4), np.empty((0, 0))])
def test_a_table_that_is_not_square_is_refused(bad):
    with pytest.raises(InputError, match="one row and one column per class"):
        confusion_matrix(bad)


def test_labels_must_fit():
    with pytest.raises(InputError, match="3 labels were given for a confusion matrix of 2 classes"):
        confusion_matrix(np.eye(2), ["a", "b", "c"])


def test_worst_pairs_are_the_largest_off_the_diagonal():
    counts = counts_of(30, seed=3) * 7
    pairs = worst_pairs(counts, 5)
    off = counts * (1 - np.eye(30, dtype=int))
    assert [p.rows for p in pairs] == sorted(off.ravel())[::-1][:5]
    assert all(counts[p.true, p.predicted] == p.rows for p in pairs)


def test_texts_are_about_all_classes_if_only_some_are_drawn():
    """Mistakes with a class that is not drawn count in the accuracy, in the shares, and in the list."""
    k = 300
    rows, columns = np.arange(250), np.arange(250, 500) % k
    counts = csr_array((np.full(k, 8), (np.arange(k), np.arange(k))), shape=(k, k))
    counts = counts + csr_array((np.full(250, 2), (rows, columns)), shape=(k, k))
    figure = confusion_matrix(counts)
    total, correct = counts.sum(), counts.diagonal().sum()
    assert any(f"{correct / total:.1%} of {total:,} rows are correct" in t.get_text() for t in figure.texts)
    assert worst_pairs(counts, 1)[0].share == 0.2
    one_pair = csr_array(([5, 9], ([0, 1], [0, 0])), shape=(k, k))
    listed = [t.get_text() for t in confusion_matrix(one_pair).axes[1].texts]
    assert listed == ["1\n→ 0", "9\n100%"]


def test_shares_of_weighted_counts():
    np.testing.assert_allclose(row_shares(np.array([[0.1, 0.3], [0.0, 0.0]])), [[0.25, 0.75], [0, 0]])


def test_a_number_is_no_matrix():
    with pytest.raises(InputError, match="one row and one column per class"):
        confusion_matrix(3)
