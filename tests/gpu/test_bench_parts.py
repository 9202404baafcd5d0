"""What `python -m benchmarks gpu` is made of, on small sizes: peers that are installed agree, the others are named."""

import pytest

torch = pytest.importorskip("torch")

from benchmarks import gpu_page, race  # noqa: E402
from benchmarks.jobs import gpu_bits, gpu_linear, gpu_peers, gpu_softmax  # noqa: E402

pytestmark = pytest.mark.gpu

STEPS = [f"{way}{rule}" for way in ("kept", "free") for rule in ("", ", float32 weights", ", row Adagrad")]


def test_peers_that_are_here_state_the_same_loss_and_move_the_weights():
    g = torch.Generator().manual_seed(0)
    X, W, codes = torch.randn(20, 8, generator=g), torch.randn(30, 8, generator=g), torch.arange(20)
    here, absent = gpu_peers.peer_steps()
    assert {*here, *absent} == set(gpu_peers.STEP_PEERS)
    expected = torch.nn.functional.cross_entropy(X @ W.T, codes)
    for name in ("plain torch", "torch linear_cross_entropy"):
        if name in here:
            torch.testing.assert_close(here[name](X, W.clone().requires_grad_(True), codes).detach(), expected)
            moved = W.clone()
            gpu_peers.stepped(here[name], X, moved, codes)()
            assert not torch.equal(moved, W)


def test_the_errors_of_a_peer_are_those_of_its_loss_and_gradient():
    exact = gpu_peers.exact_steps("cpu")
    plain = gpu_peers.plain_torch()
    assert "loss within 0e+00, gradient within 0.0e+00" not in gpu_peers.peer_errors(plain, exact)  # bfloat16 rounds
    doubled = gpu_peers.peer_errors(lambda X, W, codes: 2 * plain(X.float(), W.float(), codes), exact)
    assert doubled == "loss within 1e+00, gradient within 1.0e+00 of float64"


def test_the_nearest_by_bits_is_the_right_row_both_ways():
    one = next(iter(gpu_bits.coded_rows(3000, 1, "cpu")))
    assert one.quality == "same row for 100.00%, the correct one for 100.00%"
    assert set(one.rounds) == {"kway", "all codes multiplied"}


def test_a_peer_that_is_not_here_is_named_in_the_record_and_on_the_page(monkeypatch):
    def gone():
        raise gpu_peers.NotInstalled("liger-kernel")

    monkeypatch.setitem(gpu_peers.STEP_PEERS, "Liger fused linear cross entropy", gone)
    _, absent = gpu_peers.peer_steps()
    rows = gpu_softmax._absent((1, 2, 3), absent)
    (row,) = [row for row in rows if row.peer == "Liger fused linear cross entropy"]
    assert isinstance(row, race.Row)
    assert row.missing == "liger-kernel"
    assert "not installed (pip install liger-kernel)" in row.quality
    machine = {"cpu": "a", "cores": 2, "date": "b"}
    page = gpu_page.text({"gpu_softmax": {"rows": [row], "machine": machine}})
    assert "| Liger fused linear cross entropy |" in page
    assert "| not installed |" in page


def test_a_peer_that_fails_is_told():
    def broken(X, W, codes):
        raise RuntimeError("no kernel image")

    absent = {}
    assert gpu_softmax._peer_group("a peer", broken, absent)(torch.ones(2, 2), torch.zeros(2), torch.ones(3, 2)) == {}
    assert "no kernel image" in absent["a peer"].why


def test_a_peer_that_does_not_fit_is_measured_over_the_classes_that_do(monkeypatch):
    asked = []

    def greedy(X, W, codes):
        asked.append(len(W))
        if len(W) > 20:
            raise torch.OutOfMemoryError("none left")
        return gpu_peers.plain_torch()(X, W, codes)

    X, codes, W = torch.randn(8, 5), torch.arange(8), torch.randn(64, 5)
    found = gpu_softmax._peer_group("a peer", greedy, {})(X, codes, W)
    assert asked == [64, 32, 16]
    assert set(found) == {"a peer", "a peer: 16"}
    times = dict.fromkeys(("scores", "gradient", "a peer", "a peer: 16", *STEPS), gpu_softmax.Measured([1.0], 2.0))
    monkeypatch.setitem(gpu_peers.STEP_PEERS, "a peer", lambda: greedy)
    monkeypatch.setattr(gpu_softmax, "_gpu_facts", dict)
    rows = gpu_softmax._rows(times, (8, 64, 5), dict.fromkeys((*STEPS, "a peer"), "near"))
    assert [row.data for row in rows if row.peer == "a peer"] == ["8 x 16 classes x 5"]
    absent = {}
    monkeypatch.setattr(gpu_peers, "HALVED", 1)
    assert gpu_softmax._peer_group("a peer", greedy, absent)(X, codes, W) == {}
    assert "OutOfMemoryError: none left" in absent["a peer"].why


def test_every_kind_of_step_runs_and_moves_the_weights():
    torch.manual_seed(0)  # of some draws, bfloat16 rounds the short step of a benchmark away
    X, codes = torch.randn(16, 8).bfloat16(), torch.arange(16)
    found = set()
    for group, kind in (
        (gpu_softmax._kept_group, torch.bfloat16),
        (gpu_softmax._free_group, torch.bfloat16),
        (gpu_softmax._kept_float, torch.float32),
        (gpu_softmax._free_float, torch.float32),
    ):
        W = torch.randn(32, 8).to(kind)
        for name, run in group(X, codes, W).items():
            before = W.clone()
            run()
            found.add(name)
            assert name in ("scores", "gradient") or not torch.equal(before, W)
    assert found == {"scores", "gradient", *STEPS}


def test_sampled_steps_and_answers_are_timed():
    found = gpu_linear.sentences(512, (64, 300, 16))
    assert all(seconds > 0 for seconds, _ in found.values())
    assert "100% of 8 rows" in found["predict_topk, k=10, float32"][1]
