"""Peers of a softmax step on a GPU: each gives a loss of (X, W, codes), which autograd and an update make a step of.

A peer that is not here is named with what to install; one that fails is named with what it said; one that runs out of
memory is measured over half of the classes, a quarter, ..., beside kway's step over as many. Losses and gradients
of all are held against float64 on small problems of two spreads of scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..models import NotInstalled

Loss = Callable[[Any, Any, Any], Any]  # X (B, d), W (K, d), codes (B,) -> the mean loss


def plain_torch() -> Loss:
    """All scores, then the loss."""
    from torch.nn import functional as F

    return lambda X, W, codes: F.cross_entropy(X @ W.T, codes)


def torch_fused() -> Loss:
    """torch's own fused loss, in chunks where it has the option."""
    from torch.nn import functional as F

    if not hasattr(F, "linear_cross_entropy"):
        raise NotInstalled("torch>=2.13")
    import torch

    options = torch.nn.LinearCrossEntropyOptions() if hasattr(torch.nn, "LinearCrossEntropyOptions") else None
    return lambda X, W, codes: F.linear_cross_entropy(X, W, codes, options=options)


def liger() -> Loss:
    """Liger's fused linear cross entropy."""
    try:
        from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss
    except ImportError:
        raise NotInstalled("liger-kernel") from None
    loss = LigerFusedLinearCrossEntropyLoss()
    return lambda X, W, codes: loss(W, X.detach().requires_grad_(True), codes)  # else it makes no gradient at all


def cut() -> Loss:
    """cut-cross-entropy without its threshold, which would drop nearly all mass at a million classes."""
    try:
        from cut_cross_entropy import linear_cross_entropy
    except ImportError:
        raise NotInstalled("cut-cross-entropy") from None
    return lambda X, W, codes: linear_cross_entropy(X, W, codes, filter_eps=None)


HALVED = 4  # times that the classes are, at most, where a peer's step does not fit
STEP_PEERS: dict[str, Callable[[], Loss]] = {
    "plain torch": plain_torch,
    "torch linear_cross_entropy": torch_fused,
    "Liger fused linear cross entropy": liger,
    "cut-cross-entropy": cut,
}


@dataclass(frozen=True)
class Absent:
    """A peer that was not measured: the package that is missing, and why in words."""

    package: str
    why: str


class ExactStep(NamedTuple):
    """X (B, d), codes (B,) and W (K, d) of a spread; the mean loss and its gradient (K, d) by float64."""

    spread: float
    X: Any
    codes: Any
    W: Any
    loss: float
    gradient: Any


def exact_steps(device: str = "cuda") -> list[ExactStep]:
    """Small problems of two spreads of scores."""
    import torch

    B, K, d, found = 384, 5003, 1024, []
    for spread in (0.02, 0.2):
        X = torch.randn((B, d), device=device).to(torch.bfloat16)
        codes = torch.randint(0, K, (B,), device=device)
        W = (torch.randn((K, d), device=device) * spread).to(torch.bfloat16)
        x = X.double()
        z = x @ W.double().T
        p = z.softmax(1)
        p[torch.arange(B, device=device), codes] -= 1
        loss = torch.nn.functional.cross_entropy(z, codes).item()
        found.append(ExactStep(spread, X, codes, W, loss, p.T @ x / B))
    return found


def errors_told(errors: list[tuple[float, float]]) -> str:
    """The worst relative errors of loss and gradient, in words."""
    off, turn = map(max, zip(*errors))
    return f"loss within {off:.0e}, gradient within {turn:.1e} of float64"


def peer_errors(loss: Loss, exact: list[ExactStep]) -> str:
    """Those of a peer."""
    found = []
    for one in exact:
        weights = one.W.detach().clone().requires_grad_(True)
        value = loss(one.X, weights, one.codes)
        value.backward()
        turn = float((weights.grad.double() - one.gradient).norm() / one.gradient.norm())
        found.append((abs(value.item() - one.loss) / one.loss, turn))
    return errors_told(found)


def peer_steps() -> tuple[dict[str, Loss], dict[str, Absent]]:
    """The losses of the peers that are here, and those that are not."""
    here: dict[str, Loss] = {}
    absent: dict[str, Absent] = {}
    for name, load in STEP_PEERS.items():
        try:
            here[name] = load()
        except NotInstalled as error:
            absent[name] = Absent(error.package, f"not installed (pip install {error.package})")
    return here, absent


def stepped(loss: Loss, X: Any, W: Any, codes: Any) -> Callable[[], None]:
    """A step: the loss, its gradient by autograd, W updated in place."""

    def run() -> None:
        weights = W.detach().requires_grad_(True)
        loss(X, weights, codes).backward()
        W.add_(weights.grad, alpha=-1e-3)

    return run


class Fitting(NamedTuple):
    """A step of a peer, and the weights (K, d) it fits in memory with: all of them, or the first half, quarter, ..."""

    run: Callable[[], None]
    weights: Any


def largest_step(loss: Loss, X: Any, W: Any, codes: Any) -> Fitting:
    """The step over as many classes as fit, run once; what else it fails with is raised."""
    import torch

    for halved in range(HALVED + 1):
        weights = W[: len(W) >> halved]
        run = stepped(loss, X, weights, codes % len(weights))
        try:
            run()
        except torch.OutOfMemoryError:
            if halved == HALVED:
                raise
            torch.cuda.empty_cache()
        else:
            break
    return Fitting(run, weights)
