"""Sampled softmax and files: checkpoints that a fit goes on from, weights that are mapped; what cannot be, refused."""

import warnings

import numpy as np
import pytest

import kway
from kway.errors import InputError
from kway.linear import fitting
from kway.linear.losses import LOSSES, Targets
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers import sampled
from kway.linear.solvers.sampled import Sampled


class Ended(Exception):
    """The process was killed."""


@pytest.mark.parametrize("name", ["weights", "checkpoint"])
def test_folders_that_cannot_be_are_refused(name, tmp_path):
    rows = kway.datasets.many_classes(20, 4, 4, 20, 0.3, seed=1)
    (tmp_path / "file").write_text("")
    (tmp_path / "taken" / "weights.npy").mkdir(parents=True)
    for folder in (str(tmp_path / "file"), 5, "a\0b", *([str(tmp_path / "taken")] if name == "weights" else [])):
        with pytest.raises(InputError, match=f"{name}="):
            kway.SoftmaxClassifier(solver=Sampled(4, 4, **{name: folder})).fit(rows.x_train, rows.y_train)


@pytest.mark.parametrize("spoilt", ["half", "hard", "theta", "facts"])
def test_a_checkpoint_that_was_altered_is_refused(spoilt, tmp_path):
    rows = kway.datasets.many_classes(20, 4, 4, 20, 0.3, seed=1)
    model = kway.SoftmaxClassifier(solver=Sampled(4, 4, checkpoint=str(tmp_path)), max_iter=1, tol=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(rows.x_train, rows.y_train)
    file = tmp_path / "sampled.npz"
    with np.load(file) as held:
        arrays = dict(held)
    if spoilt == "half":
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    else:
        wrong = {"hard": np.array([20]), "theta": arrays["theta"][:1], "facts": np.array("[]")}
        np.savez(file, **arrays | {spoilt: wrong[spoilt]})
    with pytest.raises(InputError, match="cannot be read"):
        model.fit(rows.x_train, rows.y_train)


def test_a_fit_that_was_ended_goes_on_to_the_same_end(tmp_path, monkeypatch):
    rows = kway.datasets.many_classes(300, 16, 4, 50, 0.3, seed=1)

    def model(folder, epochs=6, seed=0):
        solver = Sampled(64, 32, checkpoint=None if folder is None else str(folder))
        return kway.SoftmaxClassifier(solver=solver, alpha=1e-5, max_iter=epochs, tol=1e-9, random_state=seed)

    def killed(folder, run, history, mark):
        write(folder, run, history, mark)
        if len(history) == 3:
            raise Ended

    write = sampled.write_checkpoint
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = model(None).fit(rows.x_train, rows.y_train)
        monkeypatch.setattr(sampled, "write_checkpoint", killed)
        with pytest.raises(Ended):
            model(tmp_path / "state").fit(rows.x_train, rows.y_train)
        monkeypatch.undo()
        again = model(tmp_path / "state").fit(rows.x_train, rows.y_train)
        np.testing.assert_array_equal(again.coef_, whole.coef_)
        assert again.history_ == whole.history_
        assert again.n_iter_ == 6
        with pytest.raises(InputError, match="another checkpoint folder"):
            model(tmp_path / "state").fit(rows.x_train * 2, rows.y_train)
        one, label = rows.x_train.copy(), rows.y_train.copy()
        one[77, 3] += 0.01
        label[[5, 900]] = label[[900, 5]]
        for X, y in ((one, rows.y_train), (rows.x_train, label)):  # one number, or two labels, of all
            with pytest.raises(InputError, match="another checkpoint folder"):
                model(tmp_path / "state").fit(X, y)
        (tmp_path / "state" / "sampled.npz").write_bytes(b"torn")
        with pytest.raises(InputError, match="start again"):
            model(tmp_path / "state").fit(rows.x_train, rows.y_train)


def test_weights_may_lie_in_a_file(tmp_path):
    data = kway.datasets.many_classes(1200, 24, 4, 300, 0.4, seed=3)

    def fitted(**settings):
        model = kway.SoftmaxClassifier(solver=Sampled(negatives=64, hard=64, **settings), max_iter=5, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model.fit(data.x_train, data.y_train)

    held, mapped = fitted(), fitted(weights=str(tmp_path / "weights"))
    assert (tmp_path / "weights" / "weights.npy").stat().st_size >= 4 * 1200 * 25
    np.testing.assert_array_equal(held.coef_, mapped.coef_)
    kway.save(mapped, tmp_path / "m.kway")
    np.testing.assert_array_equal(kway.load(tmp_path / "m.kway").predict(data.x_test), held.predict(data.x_test))


def test_weights_larger_than_memory_lie_in_a_temporary_file(monkeypatch, capsys):
    data = kway.datasets.many_classes(1200, 24, 2, 300, 0.4, seed=3)
    monkeypatch.setattr("kway.linear.plan.has_room", lambda need: False)
    monkeypatch.setattr("kway.linear.solvers.sampled_files.has_room", lambda need: False)
    rows = np.random.default_rng(0).standard_normal((60, 7))
    targets = Targets(np.arange(60))
    theta = Sampled().cold_start(Objective(rows, targets, 5000, LOSSES["softmax"].joint, Penalty(0.0)))
    assert isinstance(theta.base, np.memmap)
    assert not theta.any()
    theta[:] = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = kway.SoftmaxClassifier(solver="sampled", max_iter=2).fit(data.x_train, data.y_train)
    assert "in a file" in capsys.readouterr().err
    assert model.coef_.shape == (1200, 24)


@pytest.mark.parametrize("once", [0, 10**9])
def test_weights_are_split_with_or_without_a_copy(once, monkeypatch):
    theta = np.random.default_rng(0).normal(size=(1000, 11)).astype(np.float32)
    expected = theta.copy()
    monkeypatch.setattr(fitting, "BLOCK_BYTES", once)
    monkeypatch.setattr(fitting, "CACHE_BYTES", 400)
    W, b = fitting.split_weights(theta)
    np.testing.assert_array_equal(W, expected[:, :-1])
    np.testing.assert_array_equal(b, expected[:, -1])
    assert W.flags.c_contiguous
    assert np.shares_memory(W, theta) == (once == 0)
