"""C2b: sampled softmax on real images, and against libraries for very many classes, each alone in a process.

omniglot   1,623 classes of real images: sampled against full softmax at one alpha, top-1 accuracy within one point
drawn      10^4 and 10^5 classes in families of 20: against napkinXC and PECOS in the Python that $KWAY_XMC_PYTHON
           names (models/extreme.py), at their defaults, and class means

kway's alphas are those of examples/million_classes.py (1e-3 / K) and, on Omniglot, 4e-4 for both. `--classes 10000`
leaves out the larger set.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .. import datasets
from ..child import spawn
from ..models import extreme
from ..race import Row

SIZES = ((10_000, 5), (100_000, 2))  # classes, rows per class
QUICK = ((1000, 5),)
FEATURES, FAMILY, APART, NOISE, ASKED = 64, 20, 0.6, 0.7, 2000
POINT = 0.01
OMNIGLOT_ALPHA = 4e-4
SAMPLED, FULL, MEANS = "softmax, sampled", "softmax, all classes", "class means"


def c2b(rounds: int, quick: bool) -> list[Row]:
    """Return the rows of both parts."""
    rows = [] if quick or datasets.folder() is None else omniglot()
    most = datasets.classes()
    for K, each in QUICK if quick else SIZES:
        if most is None or most >= K:
            rows += against(K, each)
    return rows


def omniglot() -> list[Row]:
    """Compare sampled with full softmax: seconds and loss of accuracy."""
    data = datasets.images("omniglot")
    found = _children([SAMPLED, FULL], OMNIGLOT_ALPHA, (data.X, data.y, data.Q, data.yq))
    ours, full = found[SAMPLED], found[FULL]
    said, lost = _compared(ours, full), max(0.0, full["right"] - ours["right"])
    near = lost <= POINT
    return [
        Row("C2b", "fit", "omniglot", FULL, ours["fit"], full["fit"], None, said, near, points=found),
        Row("C2b", "accuracy lost to sampling", "omniglot", "limit", lost, POINT, 1, said, unit="share", points=found),
    ]


def against(K: int, each: int) -> list[Row]:
    """Compare sampled softmax with the other libraries on one drawn dataset."""
    found = _children([SAMPLED, MEANS, *extreme.PEERS], 1e-3 / K, drawn(K, each))
    data = f"{K:,} classes x {FEATURES}, {each} rows each"
    ours = found[SAMPLED]
    return [
        Row("C2b", "fit", data, peer, ours["fit"], theirs["fit"], None, _compared(ours, theirs),
            ours["right"] >= theirs["right"] - POINT, points={SAMPLED: ours, peer: theirs})
        if "fit" in theirs
        else Row("C2b", "fit", data, peer, 0.0, 0.0, None, "", missing=theirs["missing"])
        for peer, theirs in found.items() if peer != SAMPLED
    ]  # fmt: skip


def drawn(K: int, each: int) -> tuple[np.ndarray, ...]:
    """Draw rows around class centers, which lie around centers of families, and queries; return both with labels."""
    rng = np.random.default_rng(0)
    centers = np.repeat(rng.standard_normal((-(-K // FAMILY), FEATURES), dtype=np.float32), FAMILY, axis=0)[:K]
    centers += np.float32(APART) * rng.standard_normal(centers.shape, dtype=np.float32)
    y, asked = rng.permutation(np.repeat(np.arange(K), each)), rng.integers(K, size=ASKED)
    X, Q = (centers[c] + np.float32(NOISE) * rng.standard_normal((len(c), FEATURES), dtype=np.float32)
            for c in (y, asked))  # fmt: skip
    return X, y, Q, asked


def _compared(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    shown = (("accuracy", "right", ".2%", ""), ("prediction", "answer", ".1e", " s per row"),
             ("memory", "peak", ".0f", " MB"), ("CPU", "cpu", ".0f", " s"))  # fmt: skip
    return ", ".join(f"{name} {ours[key]:{form}} / {theirs[key]:{form}}{unit}" for name, key, form, unit in shown)


def _children(names: list[str], alpha: float, rows: tuple[np.ndarray, ...]) -> dict[str, Any]:
    """Measure each contestant on these rows in its own process."""
    with tempfile.TemporaryDirectory() as folder:
        for part, values in zip("xyqt", rows):
            np.save(Path(folder) / f"{part}.npy", values)
        return {name: _child(name, alpha, folder) for name in names}


def _child(name: str, alpha: float, folder: str) -> dict[str, Any]:
    if name not in extreme.PEERS:
        return dict(json.loads(spawn("jobs.anchors", name, str(alpha), folder).splitlines()[-1]))
    python = os.environ.get("KWAY_XMC_PYTHON", sys.executable)
    done = subprocess.run([python, extreme.__file__, name, folder], capture_output=True, text=True, check=False)
    if done.returncode:
        return {"missing": f"{name.split()[0]}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main(name: str, alpha: float, folder: str) -> None:
    """Run in the child processes of kway."""
    import kway

    warnings.simplefilter("ignore")
    models: dict[str, Any] = {
        SAMPLED: lambda: kway.SoftmaxClassifier(solver="sampled", alpha=alpha, random_state=0),
        FULL: lambda: kway.SoftmaxClassifier(solver="lbfgs", alpha=alpha),
        MEANS: kway.CentroidClassifier,
    }
    X, y, Q, t = (np.load(Path(folder) / f"{part}.npy") for part in "xyqt")
    models[name]().fit(X[:500], np.arange(500) % 20).predict(Q[:5])  # compiles
    print(json.dumps(extreme.measured(lambda X, y: models[name]().fit(X, y).predict, X, y, Q, t)))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3])
