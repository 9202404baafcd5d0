"""MappedClassifier: z = (scale (x - centre)) turn', and the classifier of z under "inner."."""

from __future__ import annotations

from kway.store.facts import one_of
from kway.store.schema import Array, Held, Schema, finite
from kway.store.schemas.confidence import inner_manifest, same_labels


def _arrays(held: Held) -> dict[str, Array]:
    one = Array(("float64",), ("d",), (finite,))
    found = {"map.scale": one, "map.centre": one}
    return found | ({"map.turn": Array(("float64",), ("r", "d"), (finite,))} if "map.turn" in held.arrays else {})


def _widths(held: Held) -> str | None:
    """The classifier inside takes as many columns as the map makes."""
    made, inner = held.sizes.get("r", held.sizes.get("d")), held.facts["inner"]["n_features"]
    return None if inner == made else f"makes {made} columns, and the classifier inside it takes {inner}"


MAPPED = Schema(
    facts={"inner": inner_manifest},
    arrays=_arrays,
    rules=(same_labels, _widths),
    params={"map": one_of("scales", "mixtures")},
    nested=("inner.",),
)
