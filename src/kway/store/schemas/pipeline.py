"""PipelinedClassifier: plain steps of a pipeline, arrays of step i under "steps.i.", the classifier under "inner.".

Columns go from step to step: step i reads "columns i" and makes "columns i+1", as many unless it narrows them; the
classifier inside takes what the last step makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kway.store.facts import flag, many, one_of, record, text
from kway.store.plain_steps import PASSTHROUGH, STEPS
from kway.store.schema import Array, Held, Schema
from kway.store.schemas.confidence import inner_manifest, same_labels


def _table(value: Any) -> str | None:
    return None if isinstance(value, dict) and all(isinstance(key, str) for key in value) else "a table of values"


_STEP = record({"name": text(), "kind": one_of(*STEPS, PASSTHROUGH), "params": _table, "values": _table})


def _step(value: Any) -> str | None:
    said = _STEP(value)
    if said or value["kind"] == PASSTHROUGH:
        return said
    known = STEPS[value["kind"]]
    for name, check in known.params.items():
        said = check(value["params"].get(name))
        if said:
            return f"{name} is {said}"
    return record(known.values, optional=tuple(known.arrays))(value["values"])


def _read(steps: list[Mapping[str, Any]]) -> list[str]:
    """The size that each step reads, and what the last one makes."""
    found = ["columns 0"]
    for i, step in enumerate(steps):
        narrows = step["kind"] in STEPS and STEPS[step["kind"]].narrows
        found.append(f"columns {i + 1}" if narrows else found[-1])
    return found


def _arrays(held: Held) -> dict[str, Array]:
    steps, found = held.facts["steps"], {}
    sizes = _read(steps)
    for i, step in enumerate(steps):
        if step["kind"] == PASSTHROUGH:
            continue
        for name, array in STEPS[step["kind"]].declared(step["params"]).items():
            shape = tuple({"in": sizes[i], "out": sizes[i + 1]}.get(str(axis), axis) for axis in array.shape)
            found[f"steps.{i}.{name}"] = replace(array, shape=shape)
    return found


def _sizes(held: Held) -> dict[str, int]:
    return {"columns 0": held.sizes["d"]} if "d" in held.sizes else {}


def _widths(held: Held) -> str | None:
    """The classifier inside takes what the last step makes; Features in front take columns of their own."""
    inner, last = held.facts["inner"], _read(held.facts["steps"])[-1]
    made = held.sizes.get(last)
    return None if inner["n_features"] == made else f"makes {made} columns, and the classifier inside takes others"


def _featured(held: Held) -> str | None:
    """Features come first, with nothing before them, and are held by the FeaturedClassifier inside."""
    fits = not held.facts["featured"] or (
        not held.facts["steps"] and held.facts["inner"]["class"] == "FeaturedClassifier"
    )
    return None if fits else "has features that are not its first step"


PIPELINED = Schema(
    facts={
        "inner": inner_manifest,
        "name": text(),
        "features_name": text(),
        "featured": flag,
        "steps": many(_step),
    },
    arrays=_arrays,
    sizes=_sizes,
    rules=(same_labels, _widths, _featured),
    nested=("inner.",),
)
