"""Check the docstrings of all public classes, functions and methods; they are in numpydoc form.

    python tools/check_docstrings.py          exit 1 if a docstring does not fit its signature
    python tools/check_docstrings.py --list   print every name that fails, also those in NOT_YET

Parameters names exactly the parameters of the signature, in any order. A function that returns something has Returns or
Yields. Fields of a NamedTuple or a dataclass may be listed under Attributes instead. Exceptions need a sentence only.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from numpydoc.docscrape import FunctionDoc

sys.path.insert(0, str(Path(__file__).parent))
from check_structure import PUBLIC

# Names whose docstrings are still to be written in numpydoc form; the list only gets shorter.
NOT_YET: tuple[str, ...] = (
    "kway.neighbors.centroid.CentroidClassifier",
    "kway.neighbors.centroid.CentroidClassifier.fit",
    "kway.neighbors.centroid.CentroidClassifier.fit_blocks",
    "kway.neighbors.centroid.CentroidClassifier.partial_fit",
    "kway.neighbors.classifier.NeighborsClassifier",
    "kway.neighbors.classifier.NeighborsClassifier.explain",
    "kway.neighbors.classifier.NeighborsClassifier.fit",
    "kway.neighbors.classifier.NeighborsClassifier.fit_blocks",
    "kway.neighbors.classifier.NeighborsClassifier.kneighbors",
    "kway.neighbors.classifier.NeighborsClassifier.kneighbors_graph",
    "kway.neighbors.classifier.NeighborsClassifier.partial_fit",
    "kway.neighbors.transfer.Transferred",
    "kway.neighbors.votes.Explanation",
    "kway.neighbors.votes.VotingClassifier.voters",
    "kway.rows.gpu.generated_rows.CounterRows",
    "kway.rows.gpu.generated_rows.CounterRows.codes",
    "kway.rows.gpu.generated_rows.CounterRows.queries",
    "kway.rows.gpu.generated_rows.CounterRows.rows",
    "kway.rows.gpu.generated_rows.counter_rows",
    "kway.search.auto.choose",
    "kway.search.auto.pick_index",
    "kway.search.auto.restore",
    "kway.search.block_scan.top_products",
    "kway.search.codecs.bits.Bits.check",
    "kway.search.codecs.bits.Bits.encode",
    "kway.search.codecs.bits.Bits.fill_cells",
    "kway.search.codecs.bits.Bits.frame",
    "kway.search.codecs.bits.Bits.frame_about",
    "kway.search.codecs.bits.Bits.gpu_codes",
    "kway.search.codecs.bits.Bits.restore",
    "kway.search.codecs.bits.Bits.scan",
    "kway.search.codecs.bits.Bits.scan_blocks",
    "kway.search.codecs.bits.Bits.store_on_gpu",
    "kway.search.codecs.bits.Bits.table",
    "kway.search.codecs.int8.Int8.encode",
    "kway.search.codecs.int8.Int8.gpu_codes",
    "kway.search.codecs.int8.Int8.restore",
    "kway.search.codecs.int8.Int8.scan_blocks",
    "kway.search.codecs.int8.Int8.store_on_gpu",
    "kway.search.codecs.stores.Store.check",
    "kway.search.codecs.stores.Store.encode",
    "kway.search.codecs.stores.Store.facts",
    "kway.search.codecs.stores.Store.fill_cells",
    "kway.search.codecs.stores.Store.gpu_codes",
    "kway.search.codecs.stores.Store.keep",
    "kway.search.codecs.stores.Store.load",
    "kway.search.codecs.stores.Store.restore",
    "kway.search.codecs.stores.Store.scan",
    "kway.search.codecs.stores.Store.scan_blocks",
    "kway.search.codecs.stores.Store.store_on_gpu",
    "kway.search.codecs.stores.Store.table",
    "kway.search.flat.Flat",
    "kway.search.flat.Flat.build_blocks",
    "kway.search.flat.Flat.check",
    "kway.search.index.Index",
    "kway.search.index.Index.add",
    "kway.search.index.Index.nearest",
    "kway.search.index.Index.parts",
    "kway.search.index.Index.remove",
    "kway.search.index.Index.search",
    "kway.search.index.Recipe.build",
    "kway.search.index.Recipe.build_blocks",
    "kway.search.index.Recipe.check",
    "kway.search.index.Recipe.facts",
    "kway.search.index.Recipe.from_facts",
    "kway.search.index.Recipe.restore",
    "kway.search.kdtree.KDTree",
    "kway.search.kmeans.cluster_blocks",
    "kway.search.landmarks.Landmarks",
    "kway.search.landmarks.Landmarks.build_blocks",
    "kway.search.landmarks.Landmarks.check",
    "kway.search.lsh.LSH",
    "kway.search.metrics.Gaussian",
    "kway.search.metrics.Gaussian.log_similarity",
    "kway.search.metrics.Gaussian.score",
    "kway.search.metrics.Haversine",
    "kway.search.metrics.Haversine.check",
    "kway.search.metrics.Haversine.finish",
    "kway.search.metrics.Haversine.prepare",
    "kway.search.metrics.Laplacian",
    "kway.search.metrics.Laplacian.log_similarity",
    "kway.search.metrics.Laplacian.score",
    "kway.search.metrics.Metric.check",
    "kway.search.metrics.Metric.facts",
    "kway.search.metrics.Metric.finish",
    "kway.search.metrics.Metric.log_similarity",
    "kway.search.metrics.Metric.prepare",
    "kway.search.metrics.Metric.score",
    "kway.search.metrics.pick_metric",
    "kway.search.pairwise.pairwise",
    "kway.search.results.Neighbors",
    "kway.search.results.TopK",
    "kway.search.sharded.Sharded",
    "kway.search.sharded.Sharded.check",
    "kway.search.sharded.Sharded.facts",
    "kway.search.sharded.Sharded.from_facts",
)


def public_objects() -> Iterator[tuple[str, Any]]:
    """Yield every public class and function and the public methods of the classes, each once, by its full name."""
    seen: set[str] = set()
    for package in PUBLIC:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                for found, thing in [(_full_name(value), value), *_methods(value)]:
                    if found.startswith("kway") and found not in seen:
                        seen.add(found)
                        yield found, thing


def _full_name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _methods(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the public methods of a class that kway defines, also in its bases."""
    for base in value.__mro__ if inspect.isclass(value) else ():
        for name, member in vars(base).items():
            member = getattr(member, "__func__", getattr(member, "fn", member))  # class methods, available_if
            if not name.startswith("_") and inspect.isfunction(member) and not inspect.isclass(member):
                yield _full_name(member), member


def find_problems(value: Any) -> list[str]:
    """Return what is wrong with one docstring, one sentence each."""
    text = inspect.getdoc(value) if not inspect.isclass(value) else vars(value).get("__doc__")
    if not text or not text.strip():
        return ["has no docstring"]
    if inspect.isclass(value) and issubclass(value, Exception):
        return []
    doc = FunctionDoc(None, doc=inspect.cleandoc(text))
    expected = _parameters(value)
    named = _names(doc["Parameters"])
    if _is_record(value) and not named:
        named = _names(doc["Attributes"]) & expected
    if _takes_any(value) and named - expected:
        named, expected = set(), set()  # `**options` are described by their own names
    problems = []
    if missing := sorted(expected - named):
        problems.append(f"does not describe {', '.join(missing)}")
    if extra := sorted(named - expected):
        problems.append(f"describes {', '.join(extra)}, which the signature does not have")
    if not inspect.isclass(value) and _returns(value) and not (doc["Returns"] or doc["Yields"]):
        problems.append("has no Returns")
    return problems


def _parameters(value: Any) -> set[str]:
    try:
        found = inspect.signature(value).parameters
    except (TypeError, ValueError):
        return set()
    return {name for name in found if name not in ("self", "cls")}


def _takes_any(value: Any) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(value).parameters.values())


def _names(section: list[Any]) -> set[str]:
    """Return the names of a section; "X, y : array" is two, "**options" is "options"."""
    return {name.strip().lstrip("*") for item in section for name in item.name.split(",") if name.strip()}


def _is_record(value: Any) -> bool:
    return inspect.isclass(value) and (is_dataclass(value) or hasattr(value, "_fields"))


def _returns(value: Any) -> bool:
    return inspect.signature(value).return_annotation not in (None, "None", inspect.Signature.empty)


def main() -> int:
    """Print the docstrings that fail."""
    failing = {name: found for name, value in public_objects() if (found := find_problems(value))}
    if "--list" in sys.argv[1:]:
        print("\n".join(sorted(failing)))
        return 0
    new = {name: found for name, found in failing.items() if name not in NOT_YET}
    print("".join(f"{name} {'; '.join(found)}\n" for name, found in sorted(new.items())), end="")
    done = [name for name in NOT_YET if name not in failing]
    print("\n".join(f"{name} is done: remove it from NOT_YET" for name in done), end="\n" if done else "")
    total, left = sum(1 for _ in public_objects()), len(NOT_YET) - len(done)
    print(f"{total} public docstrings, {len(new)} wrong, {left} still to be written in numpydoc form")
    return int(bool(new))


if __name__ == "__main__":
    sys.exit(main())
