"""The softmax step over many classes against float64: loss, update, both ways, both kinds of weights, the redo."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from kway.rows.gpu import softmax_step  # noqa: E402
from kway.rows.gpu.softmax_step import Batch, RowAdagrad, SoftmaxStep, padded_columns  # noqa: E402

pytestmark = pytest.mark.gpu

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KINDS = [torch.bfloat16, torch.float32]


def drawn(B, K, d, scale, dtype, seed=0):
    g = torch.Generator().manual_seed(seed)
    X = torch.zeros((B, padded_columns(d)))
    X[:, :d] = torch.randn((B, d), generator=g)
    W = torch.zeros((K, padded_columns(d)))
    W[:, :d] = torch.randn((K, d), generator=g) * scale
    codes, weight = torch.randint(0, K, (B,), generator=g), torch.rand(B, generator=g) + 0.5
    return Batch(X.to(torch.bfloat16).to(DEVICE), codes.to(DEVICE), weight.to(DEVICE)), W.to(dtype).to(DEVICE)


def truth(batch, W):
    """Weighted mean loss and its gradient (K, D), in float64."""
    X, w = batch.X.double(), W.to(torch.bfloat16).double()
    z = X @ w.T
    rows = torch.arange(len(X), device=X.device)
    loss = ((z.logsumexp(1) - z[rows, batch.codes]) * batch.weight.double()).mean()
    p = z.softmax(1)
    p[rows, batch.codes] -= 1
    return float(loss), (p * batch.weight.double()[:, None]).T @ X / len(X)


def apart(found, wanted):
    return float((found.double() - wanted).norm() / wanted.norm())


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    """Chunks that divide nothing, so that edges are met."""
    monkeypatch.setattr(softmax_step, "CHUNK", 264)
    monkeypatch.setattr(softmax_step, "MANY_CLASSES", 100)


@pytest.mark.parametrize("scale", [0.02, 0.3])
@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("keep", [True, False])
def test_loss_and_update_are_those_of_float64(keep, dtype, scale):
    batch, W = drawn(150, 1203, 90, scale, dtype)
    loss, gradient = truth(batch, W)
    step, before, rate = SoftmaxStep(W.clone(), keep), W.double(), 1e4 * scale  # a long step: rounding of W is small
    assert float(step(batch, rate)) == pytest.approx(loss, rel=2e-5)
    assert apart((before - step.W.double()) / rate, gradient) < 6e-3
    assert step.redone == 0


@pytest.mark.parametrize("keep", [True, False])
def test_rows_that_are_nearly_certain_keep_their_digits(keep):
    """The own class's slope is -(1 - p): taken from rounded exponentials it would be off by a multiple of itself."""
    batch, W = drawn(64, 300, 40, 0.02, torch.float32)
    batch = batch._replace(codes=torch.arange(64, device=DEVICE) * 3)
    W[batch.codes] += 0.3 * batch.X.float()
    loss, gradient = truth(batch, W)
    assert loss < 0.2
    step = SoftmaxStep(W.clone(), keep)
    assert float(step(batch, 1e4)) == pytest.approx(loss, rel=1e-3, abs=1e-6)
    assert apart((W.double() - step.W.double()) / 1e4, gradient) < 8e-3


@pytest.mark.parametrize("keep", [True, False])
def test_a_score_that_passes_the_reference_is_redone(keep):
    batch, W = drawn(70, 700, 32, 0.1, torch.float32)
    W[500] = 40 * batch.X[3].float()  # far above the best of the first classes
    loss, gradient = truth(batch, W)
    step = SoftmaxStep(W.clone(), keep)
    assert float(step(batch, 1.0)) == pytest.approx(loss, rel=1e-4)
    assert step.redone == 1
    assert apart(W.double() - step.W.double(), gradient) < 6e-3


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("keep", [True, False])
def test_row_adagrad_and_the_penalty(keep, dtype):
    batch, W = drawn(150, 1203, 63, 0.05, dtype)
    batch.X[:, 63] = 1  # the bias: its weights are not penalised
    _, g = truth(batch, W)
    start = torch.rand(len(W), device=DEVICE) * float(g.square().mean())
    rule = RowAdagrad(start.clone())
    SoftmaxStep(W.clone(), keep, rule, free=1)(batch, 0.1)
    squares = start.double() + g.square().mean(1)
    assert apart(rule.squares, squares) < 1e-2
    for ridge, rate in ((0.0, 0.5), (0.3, 0.5)):
        rule = RowAdagrad(start.clone())
        step = SoftmaxStep(W.clone(), keep, rule, free=1)
        step(batch, rate, ridge)
        length = rate / squares.sqrt()[:, None]
        wanted = W.double() - length * g
        wanted[:, :63] /= 1 + length * ridge
        assert apart(step.W, wanted) < 1e-2
        plain = SoftmaxStep(W.clone(), keep, free=1)
        plain(batch, rate, ridge)
        wanted = W.double() - rate * g
        wanted[:, :63] /= 1 + rate * ridge
        assert apart(plain.W, wanted) < 5e-3


INTERPRETED = """
import torch
half = torch.float16  # the interpreter multiplies the bits of bfloat16 as if they were whole numbers
from kway.rows.gpu import softmax_step
from kway.rows.gpu.softmax_kernels import adagrad_rows, exp_tiles
g = torch.Generator().manual_seed(0)
X = torch.randn((130, 72), generator=g).to(half)
W = (torch.randn((300, 72), generator=g) * 0.1).to(half)
codes = torch.randint(0, 400, (130,), generator=g)
r = torch.randn(130, generator=g)
for how in (dict(store=True), dict(store=False), dict(store=True, subtract=True)):
    room = [torch.full((130, 304), 7.0, dtype=half)[:, :300] for _ in range(2)]
    sums = [torch.rand(130, generator=g.manual_seed(1)) for _ in range(2)]
    for f, e, s in zip((exp_tiles, softmax_step.plain_exponentials), room, sums):
        f(X, W, e, r, s, codes, 50, **how)
    assert torch.allclose(room[0].float(), room[1].float(), rtol=2e-2, atol=1e-6), how
    assert torch.allclose(sums[0], sums[1], rtol=1e-5), how
V = torch.rand(300, generator=g)
G = torch.randn((300, 72), generator=g)
A, B, v = W.float(), W.float(), V.clone()
adagrad_rows(A, G, v, 0.1, 0.2, 70)
V += G.square().mean(1)
t = (0.1 / V.sqrt())[:, None]
B -= t * G
B[:, :70] /= 1 + 0.2 * t
assert torch.allclose(A, B, rtol=1e-5, atol=1e-6) and torch.allclose(v, V)
print("same")
"""


@pytest.mark.skipif(DEVICE == "cuda", reason="the kernels themselves run above")
def test_kernels_by_tritons_interpreter_do_what_torch_does():
    pytest.importorskip("triton")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    found = subprocess.run(
        [sys.executable, "-c", INTERPRETED], env=environment, capture_output=True, text=True, timeout=300
    )
    assert found.stdout == "same\n", found.stderr[-2000:]
