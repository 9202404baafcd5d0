"""Choice of an index: by name, by recipe, or from the number of rows and columns and the metric.

`choose` returns exact indexes only; approximate ones are used if the user asks for them.
"""

from __future__ import annotations

import difflib
import importlib
from collections import UserDict
from dataclasses import replace
from typing import Any, NamedTuple

from numpy.typing import NDArray

from kway.errors import CombinationError, InputError
from kway.rows.gpu.device import names_gpu
from kway.search.distances import EUCLIDEAN, GREAT_CIRCLE, MANHATTAN
from kway.search.flat import Flat
from kway.search.index import Index, Recipe
from kway.search.metrics import Metric


class Recipes(UserDict[str, Any]):
    """Classes of recipes by name; a value that is the name of a class is replaced by the class at its first use."""

    def __getitem__(self, name: str) -> type[Recipe]:
        recipe: Any = super().__getitem__(name)
        if isinstance(recipe, str):
            recipe = self[name] = getattr(importlib.import_module(f"kway.search.{name}"), recipe)
        return recipe


INDEXES = Recipes(flat=Flat, landmarks="Landmarks", kdtree="KDTree", lsh="LSH", sharded="Sharded")

TREES = (EUCLIDEAN, MANHATTAN, GREAT_CIRCLE)  # distances for which a KD-tree may be chosen
TREE_COLUMNS = 8  # number of columns up to which a KD-tree is chosen: with more, it visits most of its leaves


class ChosenIndex(NamedTuple):
    """A recipe, and one sentence that says why it was chosen; empty if the user chose it."""

    recipe: Recipe
    why: str


def choose(n: int, d: int, metric: Metric, sparse: bool = False) -> ChosenIndex:
    """Choose an exact index for n rows of d columns.

    Parameters
    ----------
    n, d : int
        Number of rows and of columns.
    metric : Metric
        The metric.
    sparse : bool, default=False
        Whether the rows are sparse.

    Returns
    -------
    ChosenIndex
        The recipe, and why it was chosen.
    """
    if not sparse and metric.distance in TREES and d <= TREE_COLUMNS and n >= 2000:
        return ChosenIndex(
            INDEXES["kdtree"](), f"a KD-tree: {n:,} rows of only {d} columns, so that a tree visits few leaves"
        )
    return ChosenIndex(Flat(), "flat: exact for every metric, and bounds skip most rows if they can")


def pick_index(
    index: str | Recipe, n: int, d: int, metric: Metric, sparse: bool = False, device: str = "cpu"
) -> ChosenIndex:
    """Return the recipe for a parameter `index`.

    Parameters
    ----------
    index : str or Recipe
        "auto", a name of INDEXES, or a recipe.
    n, d, metric, sparse
        As in `choose`, for "auto".
    device : {"cpu", "cuda", "cuda:N", "auto"}, default="cpu"
        Device of the search.

    Returns
    -------
    ChosenIndex
        The recipe, and why it was chosen.
    """
    if isinstance(index, Recipe):
        return ChosenIndex(_on_device(index, device), "")
    if index == "auto" and names_gpu(device):
        return ChosenIndex(Flat(device=device), "flat: the index for a GPU")
    if index == "auto":
        chosen = choose(n, d, metric, sparse)
        return ChosenIndex(_on_device(chosen.recipe, device), chosen.why)
    if isinstance(index, str) and index in INDEXES:
        return ChosenIndex(_on_device(INDEXES[index](), device), "")
    similar = difflib.get_close_matches(str(index).lower(), ["auto", *INDEXES], n=1)
    hint = f"; did you mean {similar[0]!r}? Use" if similar else "; use"
    raise InputError(f"unknown index {index!r}{hint} 'auto', {', '.join(map(repr, INDEXES))}, or a recipe")


def _on_device(recipe: Recipe, device: str) -> Recipe:
    """Return the recipe for this device; raise CombinationError if only the CPU can search it."""
    if isinstance(recipe, Flat):
        return recipe if device == "cpu" else replace(recipe, device=device)
    if names_gpu(device):
        raise CombinationError(
            f"{type(recipe).__name__} searches on the CPU, got device={device!r}; use index='flat' on the GPU, which "
            "is exact, or device='cpu'"
        )
    return recipe


def restore(facts: dict[str, Any], arrays: dict[str, NDArray]) -> Index:
    """Return the live index from its parts in a model file.

    Parameters
    ----------
    facts : dict
        Facts of `Index.parts`.
    arrays : dict of str to ndarray
        Arrays of `Index.parts`; they may be memory-mapped.

    Returns
    -------
    Index
        The live index.
    """
    return type(facts["recipe"]).restore(facts, arrays)
