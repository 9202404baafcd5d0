"""Schema of FeaturedClassifier: Features under "features.", the classifier under "inner.".

A part of the features (tables/features/parts.py) is a JSON object of its type and fields. The names of its arrays
begin with its position among the parts, for example "features.0.numbers.mean".

    NumbersPart      p source columns, and Numbers if they are scaled
    VectorPart       one column of vectors, and Numbers if they are scaled
    Levels, LevelCodes, Terms    one column of categories, as columns of 0 and 1 or as codes, or of text
    EmbeddedPart     one column of texts that a language model embeds
    Numbers          fill, mean, spread (p,) and flagged (f,) < p; outputs p + f columns
    SparseScaling    the largest absolute values (p,) of sparse columns
    Shapes           k filters (p, k) for the patches of images, offset (k,), mean and spread (m,); outputs m columns

A matrix has at most one part: Numbers, SparseScaling or Shapes. All parts together output n_out columns, which the
inner classifier reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from numpy.typing import NDArray

from kway.memory import BLOCK_BYTES
from kway.modelfile.schema import Array, ArrayRule, Schema, StoredObject, ascending, finite, index_below, positive
from kway.modelfile.schemas.wrappers import inner_manifest, reasons, same_labels
from kway.modelfile.value_checks import (
    Check,
    ValueCheck,
    boolean,
    json_object,
    list_of,
    number,
    one_of,
    optional,
    plain_dict,
    record,
    short_repr,
    text,
    whole_number,
)
from kway.tables.features.shapes import LEAST_SIDE, patch_values, shape_columns

_MAX_PIXELS = BLOCK_BYTES // 4  # 2^24 values of an image, such as 4096 x 4096 gray pixels: a block of float32

_NAMES = list_of(text())
_FORM = list_of(whole_number(1, _MAX_PIXELS), 3)


_WIDTH: dict[str, Check] = {"width": whole_number(1)}
_FIELDS: dict[str, dict[str, Check]] = {  # type of part -> checks of fields that replace those of their types
    "NumbersPart": {},
    "Levels": {},
    "LevelCodes": {},
    "Terms": {},
    "VectorPart": _WIDTH,
    "EmbeddedPart": _WIDTH,
    "Numbers": {},
    "SparseScaling": {},
    "Shapes": {"form": _FORM, "top": number(0.0, exclusive=True)},
}
_PARTS = {  # their module loads scikit-learn, which most models do not need
    kind: record(f"kway.tables.features.parts.{kind}", type=one_of(kind), **checks) for kind, checks in _FIELDS.items()
}


def _check_part(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in _PARTS:
        return f"is {short_repr(value)}, expected a part: {', '.join(_PARTS)}"
    return _PARTS[kind](value)


def _check_image_form(value: Any) -> str | None:
    problem = _FORM(value)
    if problem is None and math.prod(value) > _MAX_PIXELS:
        return f"is {value}, expected the form of images of at most 2^24 values"
    return problem


def _are_formats(value: Any) -> bool:
    """Return whether a value is {column: decimal mark or strptime format}."""
    return isinstance(value, dict) and all(
        isinstance(column, str) and isinstance(form, str) and (form in (".", ",") or ("%" in form and len(form) < 40))
        for column, form in value.items()
    )


_FORMATS = ValueCheck("{column: decimal mark or date format}", _are_formats)

_LEARNED = json_object(
    {
        "parts": list_of(_check_part),
        "records": list_of(record("kway.tables.features.parts.ColumnRecord")),
        "columns": optional(_NAMES),
        "words": _NAMES,
        "written": _FORMATS,
        "n_in": whole_number(1),
        "n_out": whole_number(1),
        "sparse": boolean,
        "embed": optional(list_of(text(), 3)),
    }
)
_SETTINGS = json_object(
    {
        "kinds": optional(plain_dict),
        "scale": one_of("auto", "none", "standard"),
        "embed": optional(text()),
        "image": optional(_check_image_form),
        "shapes": boolean,
        "written": optional(_FORMATS),
        "form": one_of("scaled", "columns"),
    },
)


# ---- arrays of the parts, by type


def _numbers(place: str) -> dict[str, Array]:
    p = f"p of {place}"
    per_column = Array(("float64",), (p,), (finite,))
    return {
        f"{place}.fill": per_column,
        f"{place}.mean": per_column,
        f"{place}.spread": Array(("float64",), (p,), (positive,)),
        f"{place}.flagged": Array(("int64",), (f"f of {place}*",), (ascending, index_below(p))),
    }


def _sparse_scaling(place: str) -> dict[str, Array]:
    return {f"{place}.max_abs": Array(("float64",), (f"p of {place}",), (positive,))}


def _shapes(place: str) -> dict[str, Array]:
    p, k, m = (f"{size} of {place}" for size in "pkm")
    return {
        f"{place}.filters": Array(("float32",), (p, k), (finite,)),
        f"{place}.offset": Array(("float32",), (k,), (finite,)),
        f"{place}.mean": Array(("float32",), (m,), (finite,)),
        f"{place}.spread": Array(("float32",), (m,), (positive,)),
    }


def _terms(place: str) -> dict[str, Array]:
    arrays = {}
    for family in ("word", "piece"):
        size = f"{family}s of {place}*"
        arrays[f"{place}.{family}s"] = Array(("uint8",), (f"bytes of {family}s of {place}*",), (_lines_of_text(size),))
        arrays[f"{place}.{family}_idf"] = Array(("float32",), (size,), (finite,))
    return arrays


def _lines_of_text(size: str) -> ArrayRule:
    """Require UTF-8 text, and as many lines as `size`, all different."""

    def rule(array: NDArray, sizes: Mapping[str, int]) -> str | None:
        try:
            lines = array.tobytes().decode("utf-8", "surrogatepass").split("\n") if array.size else []
        except UnicodeDecodeError:
            return "is not UTF-8"
        if len(set(lines)) < len(lines):
            return "has the same line twice"
        return None if len(lines) == sizes[size] else f"has {len(lines):,} lines, expected {sizes[size]:,}"

    return rule


_ARRAYS: dict[str, Callable[[str], dict[str, Array]]] = {
    "Numbers": _numbers,
    "SparseScaling": _sparse_scaling,
    "Shapes": _shapes,
    "Terms": _terms,
}


def _arrays(stored: StoredObject) -> dict[str, Array]:
    arrays = {"spread": Array(("float32",), ("n_out",), (finite,), optional=True)}
    for i, part in enumerate(stored.facts["learned"]["parts"]):
        for place, kind in _with_arrays(part, f"features.{i}"):
            arrays |= _ARRAYS[kind](place)
    return arrays


def _with_arrays(part: Mapping[str, Any], place: str) -> list[tuple[str, str]]:
    """Return (place, type) of the objects in a part that have arrays: itself, or its numbers."""
    inside = [(f"{place}.numbers", part["numbers"])] if part.get("numbers") else []
    return [(where, each["type"]) for where, each in [(place, part), *inside] if each["type"] in _ARRAYS]


# ---- widths


class _PartWidth(NamedTuple):
    """The number of columns that a part outputs, and the problem with the part, or None."""

    width: int
    problem: str | None = None


def _measure_part(part: Mapping[str, Any], place: str, sizes: Mapping[str, int]) -> _PartWidth:
    kind = part["type"]
    if kind in ("Numbers", "SparseScaling"):
        p = sizes[f"p of {place}"]
        named = not part["names"] or len(part["names"]) == p
        problem = None if named else f"names {len(part['names'])} of {p} columns"
        return _PartWidth(p + sizes.get(f"f of {place}*", 0), problem)
    if kind == "Shapes":
        return _PartWidth(sizes[f"m of {place}"], _shapes_problem(part["form"], place, sizes))
    if kind in ("NumbersPart", "VectorPart"):
        n_read = len(part["sources"]) if kind == "NumbersPart" else part["width"]
        if part["numbers"] is None:
            return _PartWidth(n_read)
        width, problem = _measure_part(part["numbers"], f"{place}.numbers", sizes)
        p = sizes[f"p of {place}.numbers"]
        return _PartWidth(width, problem or (None if p == n_read else f"reads {n_read} columns and scales {p}"))
    if kind == "EmbeddedPart":
        return _PartWidth(part["width"])
    if kind == "Levels":
        return _PartWidth(len(part["levels"]) + part["has_others"] + part["has_missing"])
    if kind == "LevelCodes":
        return _PartWidth(1)
    return _PartWidth(sum(sizes[f"{family}s of {place}*"] for family in ("word", "piece")))


def _shapes_problem(form: Any, place: str, sizes: Mapping[str, int]) -> str | None:
    """Return the problem between the form of the images and the sizes of the filters and columns, or None."""
    if min(form[:2]) < LEAST_SIDE:
        return f"has shapes of images of {form[0]} x {form[1]} pixels, which are too small"
    p, m = sizes[f"p of {place}"], sizes[f"m of {place}"]
    n_columns = shape_columns(tuple(form), sizes[f"k of {place}"])
    n_values = patch_values(tuple(form))
    if m != n_columns:
        return f"makes {m} columns of shapes, but such images have {n_columns}"
    return None if p == n_values else f"has filters of {p} values, not {n_values}"


def _output_columns_fit(stored: StoredObject) -> str | None:
    """Require parts that output n_out columns, and an inner classifier that takes as many."""
    learned = stored.facts["learned"]
    n_out = learned["n_out"]
    measured = [_measure_part(part, f"features.{i}", stored.sizes) for i, part in enumerate(learned["parts"])]
    problem = next((each.problem for each in measured if each.problem), None)
    if problem:
        return f"has a part of features that {problem}"
    embedded = learned["embed"] is not None
    total = sum(each.width for each in measured) if measured else learned["n_in"]
    if total != n_out and not (embedded and not measured):
        return f"has features that make {total:,} columns and not {n_out:,}"
    inner = stored.facts["inner"]["n_features"]
    return None if inner == n_out else f"makes {n_out:,} columns, and its inner classifier takes {inner}"


def _input_columns_fit(stored: StoredObject) -> str | None:
    """Require parts that read used columns of the table, or for a matrix at most one part, of its width."""
    learned, d = stored.facts["learned"], stored.sizes.get("d")
    columns, stored_parts = learned["columns"], learned["parts"]
    if learned["n_in"] != d or (columns is not None and len(columns) != d):
        return f"reads {learned['n_in']} columns, and its features {d}"
    image = stored.facts["settings"]["image"]
    if image is not None and math.prod(image) != d and columns is None:
        return f"reads images of {math.prod(image)} values from rows of {d}"
    of_matrix = [part["type"] in ("Numbers", "SparseScaling", "Shapes") for part in stored_parts]
    if columns is None:
        return _matrix_problem(stored, of_matrix)
    used = {record["column"] for record in learned["records"] if record["used"]}
    read = {name for part in stored_parts for name in _columns_of(part)}
    fits = stored_parts and not any(of_matrix) and read <= used <= set(columns)
    return None if fits else "reads columns that it does not name"


def _matrix_problem(stored: StoredObject, of_matrix: list[bool]) -> str | None:
    """Return the problem with the parts of a matrix, or None; `of_matrix` marks parts that a matrix can have."""
    learned = stored.facts["learned"]
    stored_parts, embedded = learned["parts"], learned["embed"] is not None
    if stored_parts and stored_parts[0]["type"] == "Shapes":
        image = stored.facts["settings"]["image"]
        fits = len(stored_parts) == 1 and not embedded and image == tuple(stored_parts[0]["form"])
        return None if fits else "has shapes of images of another form"
    fits = not stored_parts or (
        of_matrix == [True] and (embedded or stored.sizes["p of features.0"] == stored.sizes.get("d"))
    )
    return None if fits else "has parts of features that do not fit a matrix"


def _columns_of(part: Mapping[str, Any]) -> list[str]:
    if part["type"] == "NumbersPart":
        return [column for column, _ in part["sources"]]
    return [part["column"]] if "column" in part else []


FEATURED = Schema(
    facts={"inner": inner_manifest, "learned": _LEARNED, "settings": _SETTINGS, "reasons": reasons},
    optional_facts=("reasons",),  # only for models without weights
    arrays=_arrays,
    sizes=lambda stored: {"n_out": stored.facts["learned"]["n_out"]},
    rules=(same_labels, _output_columns_fit, _input_columns_fit),
)
