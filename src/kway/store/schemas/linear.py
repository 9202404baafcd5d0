"""Linear classifiers: W (R, d) and b (R,), R scores a row; of two classes 1, of `targets="number"` 1, else K."""

from __future__ import annotations

from kway.store.facts import LARGEST, anything, many, number, one_of, text, whole
from kway.store.schema import FLOAT_TYPES, Array, Held, Schema, below, same_dtype


def _arrays(held: Held) -> dict[str, Array]:
    """`support` and `margin` are there together (hinge loss) or not at all."""
    found = {"coef": Array(FLOAT_TYPES, ("R", "d")), "intercept": Array(FLOAT_TYPES, ("R",))}
    if "support" in held.arrays or "margin" in held.arrays:
        found |= {"support": Array(("int64",), ("s*",), (below(LARGEST),)), "margin": Array(FLOAT_TYPES, ("R",))}
    return found


def _sizes(held: Held) -> dict[str, int]:
    n_classes = held.sizes["K"]
    return {"R": 1 if n_classes == 2 or held.params.get("targets") == "number" else n_classes}


def _two_classes(held: Held) -> str | None:
    return None if held.sizes["K"] >= 2 else "has one class only"


LINEAR = Schema(
    facts={
        "n_iter": whole(),
        "objective": number(finite=False),
        "solver": text(),
        "history": many(number(finite=False)),
    },
    arrays=_arrays,
    sizes=_sizes,
    rules=(_two_classes, same_dtype("coef", "intercept")),
    params={"targets": one_of("one-hot", "number"), "solver": anything},
)
