"""Which index: by name, by recipe, or chosen from the number of rows and columns and the metric.

An approximate index is never chosen silently: `choose` only picks exact ones.
"""

from __future__ import annotations

import difflib
import importlib
from collections import UserDict
from dataclasses import replace
from typing import Any, NamedTuple

from numpy.typing import NDArray

from kway.errors import CombinationError, InputError, ModelFileError
from kway.search.distances import EUCLIDEAN, GREAT_CIRCLE, MANHATTAN
from kway.search.flat import Flat
from kway.search.index import Index, Recipe
from kway.search.metrics import Metric


class Recipes(UserDict[str, Any]):
    """Recipes by name; those of kway are loaded when they are asked for, and until then are the name of a class."""

    def __getitem__(self, name: str) -> type[Recipe]:
        found: Any = super().__getitem__(name)
        if isinstance(found, str):
            found = self[name] = getattr(importlib.import_module(f"kway.search.{name}"), found)
        return found


INDEXES = Recipes(flat=Flat, landmarks="Landmarks", kdtree="KDTree", lsh="LSH", sharded="Sharded")

TREES = (EUCLIDEAN, MANHATTAN, GREAT_CIRCLE)  # distances that trees are chosen for
TREE_COLUMNS = 8  # up to which a tree visits few of its leaves (no benchmark row)


class ChosenIndex(NamedTuple):
    """A recipe, and in one sentence why it was chosen."""

    recipe: Recipe
    why: str


def choose(n: int, d: int, metric: Metric, sparse: bool = False) -> ChosenIndex:
    """The exact index that fits n rows of d columns under a metric."""
    if not sparse and metric.distance in TREES and d <= TREE_COLUMNS and n >= 2000:
        return ChosenIndex(
            INDEXES["kdtree"](), f"a KD-tree: {n:,} rows of only {d} columns, where a tree visits a few leaves"
        )
    return ChosenIndex(Flat(), "flat: exact for every metric, and bounds skip most rows where they can")


def pick_index(
    index: str | Recipe, n: int, d: int, metric: Metric, sparse: bool = False, device: str = "cpu"
) -> ChosenIndex:
    """The recipe of a name ("auto" chooses), or the recipe itself, on a device where one is asked for."""
    if isinstance(index, Recipe):
        return ChosenIndex(_placed(index, device), "")
    if index == "auto" and device == "cuda":
        return ChosenIndex(Flat(device=device), "flat: what a GPU searches")
    if index == "auto":
        chosen = choose(n, d, metric, sparse)
        return ChosenIndex(_placed(chosen.recipe, device), chosen.why)
    if isinstance(index, str) and index in INDEXES:
        return ChosenIndex(_placed(INDEXES[index](), device), "")
    near = difflib.get_close_matches(str(index).lower(), ["auto", *INDEXES], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    raise InputError(f"unknown index {index!r}{hint} Known: 'auto', {', '.join(map(repr, INDEXES))}, or a recipe")


def _placed(recipe: Recipe, device: str) -> Recipe:
    """The recipe on a device: flat search and landmarks run on another than the CPU."""
    if device == "cpu":
        return recipe
    from kway.search.landmarks import Landmarks

    if isinstance(recipe, Flat | Landmarks):
        return replace(recipe, device=device)
    if device == "auto":
        return recipe
    raise CombinationError(
        f"device={device!r} searches flat indexes and landmarks, got {recipe}; use index='flat', 'landmarks' or "
        "'auto', or device='cpu'"
    )


def restore(facts: dict[str, Any], arrays: dict[str, NDArray]) -> Index:
    """The live index whose `parts()` these are."""
    name = facts.get("recipe", {}).get("index")
    if name not in INDEXES:
        raise ModelFileError(f"unknown index {name!r} in a model file; known: {', '.join(INDEXES)}")
    return INDEXES[name].restore(facts, arrays)
