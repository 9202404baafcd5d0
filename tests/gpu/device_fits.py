"""Linear fits on a GPU against float64 on the same GPU and against the fit on the CPU, over drawn problems.

Usage: python tests/gpu/device_fits.py --seconds 300 --seed 0 --out fits.json

Draws the loss, penalty, solver, form, dtype, rows, columns, classes (often fewer rows per class than columns), noise
and alpha until the time is up. A fit is right if

1. `objective_` is the objective of its weights, computed again in float64 by formulas written without the code under
   test, and it is not above that of zero weights
2. it is not above the objective of the same fit on the CPU by more than both tolerances, unless both warn
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

LOSSES = ("softmax", "softmax", "softmax", "logistic", "hinge", "rounded-hinge", "squared")
SOLVERS = {"l2": ("auto", "lbfgs"), "l1": ("auto", "proximal"), "elasticnet": ("auto", "proximal")}
MOST_WORK = 3e8  # rows x columns x classes
TOL = 1e-3


def draw_problem(rng: np.random.Generator) -> dict[str, Any]:
    """Draw a problem; sizes are log-uniform."""
    while True:
        n, d, K = (
            int(np.exp(rng.uniform(np.log(low), np.log(high)))) for low, high in ((60, 50_000), (2, 400), (2, 600))
        )
        if n * d * K <= MOST_WORK and n >= 2 * K:
            break
    penalty = str(rng.choice(["l2", "l2", "l2", "l1", "elasticnet"]))
    return {
        "n": n, "d": d, "K": K, "loss": str(rng.choice(LOSSES)), "penalty": penalty,
        "solver": str(rng.choice(SOLVERS[penalty])), "multiclass": str(rng.choice(["joint", "one-vs-all"])),
        "dtype": str(rng.choice(["float32", "float32", "float64"])), "noise": float(rng.choice([0.5, 1.0, 2.0, 4.0])),
        "alpha": float(10.0 ** rng.uniform(-6, -2)), "tensor": bool(rng.random() < 0.5),
        "seed": int(rng.integers(2**31)),
    }  # fmt: skip


def draw_rows(problem: dict[str, Any]) -> tuple[Any, Any]:
    """Return rows (n, d) around one center per class, and labels; every class has a row."""
    rng = np.random.default_rng(problem["seed"])
    centers = rng.standard_normal((problem["K"], problem["d"]))
    y = np.concatenate([np.arange(problem["K"]), rng.integers(0, problem["K"], problem["n"] - problem["K"])])
    X = centers[y] + problem["noise"] * rng.standard_normal((problem["n"], problem["d"]))
    return X.astype(problem["dtype"]), y


def column_loss(torch: Any, loss: str, t: Any) -> Any:
    """Return the loss at margins t."""
    if loss == "hinge":
        return (1 - t).clamp(min=0)
    if loss == "rounded-hinge":
        return torch.where(t <= -1, -t, (1 - t).clamp(min=0).square() / 4)
    return (1 - t).square() if loss == "squared" else torch.nn.functional.softplus(-t)


def objective(torch: Any, problem: dict[str, Any], X: Any, y: Any, W: Any, b: Any) -> float:
    """Return the mean loss plus the penalty in float64."""
    f = X.double() @ W.double().T + b.double()
    loss, K = problem["loss"], problem["K"]
    joint = problem["multiclass"] == "joint" and K > 2
    if (loss == "softmax" and K == 2) or (joint and loss in ("softmax", "logistic")):
        f = torch.cat([-f / 2, f / 2], 1) if f.shape[1] == 1 else f
        total = torch.nn.functional.cross_entropy(f, y)
    elif joint and loss == "squared":
        total = (f - torch.nn.functional.one_hot(y, K)).square().sum(1).mean()
    elif joint and loss in ("hinge", "rounded-hinge"):
        t = (f.gather(1, y[:, None]) - f).scatter(1, y[:, None], torch.inf)
        total = column_loss(torch, loss, t).sum(1).mean()
    else:
        own = y[:, None] == torch.arange(K, device=y.device) if f.shape[1] > 1 else y[:, None] == 1
        total = column_loss(torch, loss, (2.0 * own.double() - 1) * f).sum(1).mean()
    share = {"l2": 0.0, "l1": 1.0, "elasticnet": 0.5}[problem["penalty"]]
    size = W.double()
    return float(total + problem["alpha"] * (share * size.abs().sum() + (1 - share) * 0.5 * size.square().sum()))


def run_one(torch: Any, problem: dict[str, Any], device: str) -> dict[str, Any]:
    """Fit one drawn problem on the GPU and on the CPU, and compare the objectives."""
    from kway import LinearClassifier
    from kway.errors import CombinationError

    names = ("loss", "penalty", "solver", "multiclass", "alpha")
    given = {name: problem[name] for name in names} | {"tol": TOL, "random_state": 0}
    X, y = draw_rows(problem)
    there = tuple(torch.from_numpy(part).to(device) for part in (X, y))
    record, fits, warned = dict(problem), {}, {}
    for where in ("cuda" if device.startswith("cuda") else "cpu", "cpu"):
        data = there if problem["tensor"] and not fits else (X, y)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            start = time.perf_counter()
            try:
                fits[len(fits)] = LinearClassifier(device=where, **given).fit(*data)
            except CombinationError as error:
                return record | {"right": True, "refused": str(error)[:120]}
            except Exception as error:
                return record | {"right": False, "error": f"{type(error).__name__}: {str(error)[:300]}"}
            record[f"seconds {len(fits)}"] = round(time.perf_counter() - start, 3)
        warned[len(fits) - 1] = bool(caught)
    gpu, cpu = fits[0], fits[1]
    W, b = (torch.as_tensor(part, device=device) for part in (gpu.coef_, gpu.intercept_))
    value = objective(torch, problem, there[0], there[1], W, b)
    zero = objective(torch, problem, there[0], there[1], torch.zeros_like(W), torch.zeros_like(b))
    record |= {"objective": value, "stated": float(gpu.objective_), "cpu": float(cpu.objective_), "zero": zero}
    record |= {"warned": warned[0], "cpu_warned": warned[1], "iterations": int(np.max(gpu.n_iter_))}
    stated = abs(record["stated"] - value) <= 1e-4 * max(value, 1e-3)
    good = value <= record["cpu"] * (1 + 3 * TOL) + 1e-5 * zero or (warned[0] and warned[1])
    return record | {"states its objective": stated, "right": bool(stated and good and value <= zero * (1 + 1e-6))}


def main(arguments: list[str] | None = None) -> int:
    """Draw and fit until the time is up, and write the records."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=300.0, help="time limit")
    parser.add_argument("--seed", type=int, default=0, help="seed of the drawn problems")
    parser.add_argument("--device", default="cuda", help="torch device of the fits")
    parser.add_argument("--most", type=float, default=MOST_WORK, help="rows x columns x classes of the largest fit")
    parser.add_argument("--out", default="device_fits.json", help="JSON file of the results")
    chosen = parser.parse_args(arguments)
    import torch

    rng, records, end = np.random.default_rng(chosen.seed), [], time.monotonic() + chosen.seconds
    while time.monotonic() < end:
        problem = draw_problem(rng)
        if problem["n"] * problem["d"] * problem["K"] <= chosen.most:
            records.append(run_one(torch, problem, chosen.device))
            if not records[-1]["right"]:
                print(records[-1], flush=True)
    wrong = [record for record in records if not record["right"]]
    name = torch.cuda.get_device_name(chosen.device) if chosen.device.startswith("cuda") else "cpu"
    result = {"device": name, "torch": torch.__version__, "seed": chosen.seed, "fits": len(records)}
    result |= {"wrong": len(wrong), "records": records}
    Path(chosen.out).write_text(json.dumps(result, indent=1) + "\n")
    print(f"{len(records)} fits, {len(wrong)} wrong: {chosen.out}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
