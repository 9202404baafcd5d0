"""Schema of FeaturedClassifier: Features under "features.", the classifier under "inner.".

A part of the features is a table of its type and fields. Its arrays are named after its place: "0.numbers.mean".

    NumbersPart  p sources, Numbers or none  VectorPart    width, Numbers or none (not scaled)
    WordsPart    Levels, Codes or Terms      EmbeddedPart  width
    Shapes       form of the images, filters (p, k), offset (k,), mean and spread (m,): makes m columns
    Numbers      fill, mean, spread (p,), flagged (f,) < p: makes p + f columns        SparseScaling  most (p,)

Together they make n_out columns, the input of the inner classifier.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from numpy.typing import NDArray

from kway.modelfile.schema import (
    Array,
    Schema,
    StoredObject,
    Values,
    ascending,
    below,
    fields_of,
    finite,
    flag,
    many,
    maybe,
    number,
    one_of,
    positive,
    record,
    text,
    whole,
)
from kway.modelfile.schemas.wrappers import inner_manifest, reasons, same_labels
from kway.tables.features.shapes import LEAST_SIDE, patch_values, shape_columns

_NAMES = many(text())
_WIDTH = {"width": whole(1)}
_PARTS = {  # the last three are the one part of a matrix
    "NumbersPart": {},
    "WordsPart": {},
    "VectorPart": _WIDTH,
    "EmbeddedPart": _WIDTH,
    "Numbers": {},
    "SparseScaling": {},
    "Shapes": {"form": many(whole(1, 2**31), 3), "top": number(0.0, above=True)},
}
_PART_CHECKS = {
    name: fields_of(f"kway.tables.features.parts:{name}", type=one_of(name), **own) for name, own in _PARTS.items()
}


def _part(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in _PARTS:
        return f"a part: {', '.join(_PARTS)}"
    return _PART_CHECKS[kind](value)


def _image_form(value: Any) -> str | None:
    """Check the form of images, each of at most 2^24 values, as 4096 x 4096 pixels have."""
    sides = many(whole(1, 2**24), 3)(value)
    if sides or math.prod(value) <= 2**24:
        return sides
    return "the form of images of at most 2^24 values"


def _written(value: Any) -> str | None:
    """Check {column: decimal mark or date format}."""
    if not isinstance(value, dict):
        return "{column: decimal mark or date format}"
    fits = all(isinstance(how, str) and (how in (".", ",") or ("%" in how and len(how) < 40)) for how in value.values())
    return None if fits and all(isinstance(c, str) for c in value) else "a decimal mark or a date format per column"


_LEARNED = record(
    {
        "parts": many(_part),
        "records": many(fields_of("kway.tables.features.parts:ColumnRecord")),
        "columns": maybe(_NAMES),
        "words": _NAMES,
        "written": _written,
        "n_in": whole(1),
        "n_out": whole(1),
        "sparse": flag,
        "embed": maybe(many(text(), 3)),
    }
)
_SETTINGS = record(
    {
        "kinds": maybe(lambda v: None if isinstance(v, dict) else "{column: kind}"),
        "scale": one_of("auto", "none", "standard"),
        "embed": maybe(text()),
        "image": maybe(_image_form),
        "shapes": flag,
        "written": maybe(_written),
        "form": one_of("scaled", "columns"),
    },
)


# ---- arrays of the parts, by type


def _numbers(place: str) -> dict[str, Array]:
    p = f"p of {place}"
    some = Array(("float64",), (p,), (finite,))
    return {
        f"{place}.fill": some,
        f"{place}.mean": some,
        f"{place}.spread": Array(("float64",), (p,), (positive,)),
        f"{place}.flagged": Array(("int64",), (f"f of {place}*",), (ascending, below(p))),
    }


def _divided(place: str) -> dict[str, Array]:
    return {f"{place}.most": Array(("float64",), (f"p of {place}",), (positive,))}


def _shapes(place: str) -> dict[str, Array]:
    p, k, m = (f"{size} of {place}" for size in "pkm")
    one = Array(("float32",), (m,), (finite,))
    return {
        f"{place}.filters": Array(("float32",), (p, k), (finite,)),
        f"{place}.offset": Array(("float32",), (k,), (finite,)),
        f"{place}.mean": one,
        f"{place}.spread": Array(("float32",), (m,), (positive,)),
    }


def _terms(place: str) -> dict[str, Array]:
    found = {}
    for family in ("word", "piece"):
        size = f"{family}s of {place}*"
        found[f"{place}.{family}s"] = Array(("uint8",), (f"bytes of {family}s of {place}*",), (_lines(size),))
        found[f"{place}.{family}_idf"] = Array(("float32",), (size,), (finite,))
    return found


def _lines(size: str) -> Values:
    """Require UTF-8 with as many lines as the size."""

    def check(array: NDArray, sizes: Mapping[str, int]) -> str | None:
        try:
            found = array.tobytes().decode("utf-8", "surrogatepass").count("\n") + bool(array.size)
        except UnicodeDecodeError:
            return "is not UTF-8"
        return None if found == sizes[size] else f"has {found:,} lines, expected {sizes[size]:,}"

    return check


_ARRAYS: dict[str, Callable[[str], dict[str, Array]]] = {
    "Numbers": _numbers,
    "SparseScaling": _divided,
    "Shapes": _shapes,
    "Terms": _terms,
}


def _arrays(stored: StoredObject) -> dict[str, Array]:
    found = {"spread": Array(("float32",), ("columns made",), (finite,), optional=True)}
    for i, part in enumerate(stored.facts["learned"]["parts"]):
        for place, kind in _with_arrays(part, f"features.{i}"):
            found |= _ARRAYS[kind](place)
    return found


def _with_arrays(part: Mapping[str, Any], place: str) -> list[tuple[str, str]]:
    """Return (place, type) of the objects in a part that have arrays: itself, its numbers or its encoder."""
    inside = [(f"{place}.{key}", part[key]) for key in ("numbers", "encoder") if part.get(key)]
    return [(where, each["type"]) for where, each in [(place, part), *inside] if each["type"] in _ARRAYS]


# ---- widths


class _PartWidth(NamedTuple):
    """The number of columns of a part, and the problem with it."""

    width: int
    wrong: str | None = None


def _measure_part(part: Mapping[str, Any], place: str, sizes: Mapping[str, int]) -> _PartWidth:
    kind = part["type"]
    if kind in ("Numbers", "SparseScaling"):
        p = sizes[f"p of {place}"]
        named = not part["names"] or len(part["names"]) == p
        return _PartWidth(
            p + sizes.get(f"f of {place}*", 0), None if named else f"names {len(part['names'])} of {p} columns"
        )
    if kind == "Shapes":
        return _PartWidth(sizes[f"m of {place}"], _wrong_shapes(part["form"], place, sizes))
    if kind in ("NumbersPart", "VectorPart"):
        read = len(part["sources"]) if kind == "NumbersPart" else part["width"]
        if part["numbers"] is None:
            return _PartWidth(read)
        inside = _measure_part(part["numbers"], f"{place}.numbers", sizes)
        p = sizes[f"p of {place}.numbers"]
        return _PartWidth(inside.width, inside.wrong or (None if p == read else f"reads {read} columns and scales {p}"))
    if kind == "EmbeddedPart":
        return _PartWidth(part["width"])
    encoder, inside_place = part["encoder"], f"{place}.encoder"
    if encoder["type"] == "Levels":
        return _PartWidth(len(encoder["kept"]) + encoder["has_others"] + encoder["has_missing"])
    if encoder["type"] == "Codes":
        return _PartWidth(1)
    return _PartWidth(sum(sizes[f"{family}s of {inside_place}*"] for family in ("word", "piece")))


def _wrong_shapes(form: Any, place: str, sizes: Mapping[str, int]) -> str | None:
    """Check the sizes of the filters and of the columns against the form of the images."""
    if min(form[:2]) < LEAST_SIDE:
        return f"has shapes of images of {form[0]} x {form[1]} pixels, which are too small"
    made, patch = shape_columns(tuple(form), sizes[f"k of {place}"]), patch_values(tuple(form))
    if sizes[f"m of {place}"] != made:
        return f"makes {sizes[f'm of {place}']} columns of shapes, but such images have {made}"
    return None if sizes[f"p of {place}"] == patch else f"has filters of {sizes[f'p of {place}']} values, not {patch}"


def _widths(stored: StoredObject) -> str | None:
    """Check that the parts make n_out columns, and that the inner classifier takes as many."""
    learned = stored.facts["learned"]
    n_out, parts = learned["n_out"], learned["parts"]
    made = [_measure_part(part, f"features.{i}", stored.sizes) for i, part in enumerate(parts)]
    wrong = next((each.wrong for each in made if each.wrong), None)
    if wrong:
        return f"has a part of features that {wrong}"
    embedded = learned["embed"] is not None
    total = sum(each.width for each in made) if parts else learned["n_in"]
    if total != n_out and not (embedded and not parts):
        return f"has features that make {total:,} columns and not {n_out:,}"
    inner = stored.facts["inner"]["n_features"]
    return None if inner == n_out else f"makes {n_out:,} columns, and its inner classifier takes {inner}"


def _columns(stored: StoredObject) -> str | None:
    """Check that the parts of a table read its used columns, and that a matrix has at most one part, of its width."""
    learned, d = stored.facts["learned"], stored.sizes.get("d")
    columns, parts = learned["columns"], learned["parts"]
    if learned["n_in"] != d or (columns is not None and len(columns) != d):
        return f"reads {learned['n_in']} columns, and its features {d}"
    image = stored.facts["settings"]["image"]
    if image is not None and math.prod(image) != d and columns is None:
        return f"reads images of {math.prod(image)} values from rows of {d}"
    plain = [part["type"] in ("Numbers", "SparseScaling", "Shapes") for part in parts]
    if columns is None:
        if parts and parts[0]["type"] == "Shapes":
            fits = len(parts) == 1 and learned["embed"] is None and image == tuple(parts[0]["form"])
            return None if fits else "has shapes of images of another form"
        fits = not parts or (plain == [True] and (learned["embed"] is not None or stored.sizes["p of features.0"] == d))
        return None if fits else "has parts of features that do not fit a matrix"
    used = {record["column"] for record in learned["records"] if record["used"]}
    read = {name for part in parts for name in _read_by(part)}
    return None if parts and not any(plain) and read <= used <= set(columns) else "reads columns that it does not name"


def _read_by(part: Mapping[str, Any]) -> list[str]:
    if part["type"] == "NumbersPart":
        return [source["column"] for source in part["sources"]]
    return [part["column"]] if "column" in part else []


FEATURED = Schema(
    facts={"inner": inner_manifest, "learned": _LEARNED, "settings": _SETTINGS, "reasons": reasons},
    optional_facts=("reasons",),  # only for models without weights
    arrays=_arrays,
    sizes=lambda stored: {"columns made": stored.facts["learned"]["n_out"]},
    rules=(same_labels, _widths, _columns),
    nested=("inner.",),
)
