"""Tables -> LabeledRows: separate the features from the target, group, order and id columns.

Numbers and dates of the features are converted from everyday notation (sources/values.py). A column `split` with the
values train, val and test divides the rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError, UsageError
from kway.suggest import listing
from kway.tables.labeled_rows import LabeledRows, RowRequirements
from kway.tables.read_options import ALL, ReadOptions, TextForm
from kway.tables.sources.csv_files import LoadedTable
from kway.tables.sources.frames import (
    is_numeric,
    is_text,
    plain_numbers,
    refuse_repeated,
    refuse_unknown_column,
    whole_column,
)
from kway.tables.sources.labels import (
    SKIP_ROWS,
    UnlabeledError,
    column_labels,
    label_sets,
    refuse_words,
    rows_with_labels,
    split_masks,
)
from kway.tables.sources.table_files import TableSource, open_table, refuse_missing_columns
from kway.tables.sources.text_form import TableRequest
from kway.tables.sources.values import convert


def table_rows(source: TableSource, name: str, options: ReadOptions, requirements: RowRequirements) -> LabeledRows:
    """Read the rows of a table that is not in memory; `name` is the name of the table in messages."""
    loaded = _load(source, options, requirements)
    columns = [str(c) for c in loaded.table.column_names]
    refuse_repeated(columns, name)
    refuse_unknown_columns(columns, options, name)
    if loaded.table.num_rows == 0:
        raise InputError(f"{name} has a header but no rows; give at least one row")
    decimal = loaded.form.decimal or requirements.form.decimal or "."
    kept_columns = _kept_columns(source, columns, options, requirements, loaded.form)
    rows = _separate_columns(loaded, name, options, requirements, source.has_types, decimal, kept_columns)
    rows = replace(
        rows,
        form=loaded.form,
        notes=tuple(f"{name}: {note}" for note in loaded.notes),
        left_out=tuple(f"{name}: {note}" for note in (*loaded.left_out, *rows.left_out)),
    )
    return _divide_by_split(rows)


def frame_rows(
    table: Any,
    name: str,
    options: ReadOptions,
    requirements: RowRequirements,
    y: NDArray | None,
    weights: NDArray[np.float64] | None,
) -> LabeledRows:
    """Return the rows of a pyarrow Table in memory.

    The labels y (n,) and the weights (n,) are used if no column has them.
    """
    columns = list(table.column_names)
    # a model names the columns that it reads, so columns to drop or convert need not exist
    checked = options if requirements.columns is None else replace(options, drop=(), types={})
    refuse_unknown_columns(columns, checked, name)
    if table.num_rows == 0:
        raise InputError(f"{name} has no rows; give at least one row")
    kept_columns = {} if options.id is None else {options.id: table.column(options.id)}
    rows = _separate_columns(LoadedTable(table), name, options, requirements, True, options.decimal, kept_columns)
    y = rows.y if options.target is not None else y
    weights = rows.weights if options.weight is not None else weights
    return _divide_by_split(replace(rows, y=y, weights=weights))


def _load(source: TableSource, options: ReadOptions, requirements: RowRequirements) -> LoadedTable:
    """Read the table; columns of codes such as 0052 stay text unless the form is known from earlier rows."""
    form = options.form
    is_form_known = requirements.columns is not None or None not in (form.sep, form.encoding, form.decimal, form.header)
    converted = [c for c, kind in options.types.items() if kind not in ("drop", "true/false", "vector")]
    targets = [options.target, options.unused_target]
    labels = [c for c in (*targets, options.id) if c is not None]
    text_columns = [*requirements.text_columns, *requirements.earlier.formats, *converted, *labels]
    roles = [c for c in (*targets, options.group, options.order, options.weight, options.id) if c is not None]
    request = TableRequest(
        list(dict.fromkeys(text_columns)),
        form,
        requirements.form,
        [*(requirements.columns or ()), *roles, *options.drop, *options.types],
        skip_bad=options.skip_bad,
        find_codes=not is_form_known,
    )
    return open_table(source, request)


def _separate_columns(
    loaded: LoadedTable,
    name: str,
    options: ReadOptions,
    requirements: RowRequirements,
    has_types: bool,
    decimal: str | None,
    kept_columns: dict[str, Any],
) -> LabeledRows:
    """Separate features, labels, groups and order.

    `has_types` states whether text and numbers differ in the source. If `decimal` is None, the columns decide the
    decimal mark.
    """
    table, unlabeled, positions = loaded.table, tuple[str, ...](), None
    if options.target is not None and requirements.number_classes and not has_types:
        what = f"target {options.target!r} of {name}"
        refuse_words(table.column(options.target), what, requirements.number_classes, requirements.earlier.n_rows)
    # with several labels per row, no label is the empty set, which is valid
    if options.skip_bad and options.target is not None and options.multilabel is None:
        table, has_label, unlabeled = rows_with_labels(table, options.target)
        kept_columns = {c: column.filter(has_label) for c, column in kept_columns.items()}
        positions = np.flatnonzero(has_label)
    y = None if options.target is None else _labels(table, name, options, requirements, has_types)
    features = _feature_columns(list(table.column_names), options, requirements, name)
    roles = [c for c in (options.group, options.order, options.weight) if c is not None]
    target = [] if options.target is None else [options.target]
    refuse_missing_columns([*features, *roles, *target], loaded.missing_columns)
    earlier = requirements.earlier
    keep_as_text = [c for c in requirements.text_columns if c not in earlier.formats]
    selected = table.select(list(dict.fromkeys([*features, *roles])))
    converted = convert(selected, decimal, earlier, options.types, keep_as_text, options.skip_bad, f"{name}: ")
    return LabeledRows(
        name,
        converted.table.select(features),
        y,
        groups=_role_values(converted.table, options.group, f"group {options.group!r} of {name}"),
        order=_role_values(converted.table, options.order, f"order {options.order!r} of {name}"),
        weights=None if options.weight is None else row_weights(converted.table, options.weight, name),
        written=converted.written,
        left_out=(*unlabeled, *converted.strays),
        kept_columns=kept_columns,
        positions=positions,
    )


def _labels(table: Any, name: str, options: ReadOptions, requirements: RowRequirements, has_types: bool) -> NDArray:
    """Return the labels (n,) of the target column."""
    column = table.column(options.target)
    if options.multilabel is not None:
        return label_sets(column.to_pylist(), options.multilabel)
    keep_text = has_types or requirements.text_labels
    return column_labels(column, f"target {options.target!r} of {name}", keep_text, SKIP_ROWS, from_csv=not has_types)


def refuse_unknown_columns(columns: list[str], options: ReadOptions, name: str) -> None:
    """Raise UsageError if a column named by an option does not exist."""
    for role in ("target", "group", "order", "weight", "id"):
        column = getattr(options, role)
        if column is not None:
            named_by_model = options.target_from_model and role == "target"
            refuse_unknown_column(column, columns, name, role, UnlabeledError if named_by_model else UsageError)
    for column in (*options.drop, *options.types, *(() if options.keep == ALL else options.keep)):
        refuse_unknown_column(column, columns, name)


def _kept_columns(
    source: TableSource, columns: list[str], options: ReadOptions, requirements: RowRequirements, form: TextForm
) -> dict[str, Any]:
    """Return the id and the kept columns as text, or as numbers if `options.numbers` is set."""
    id_column = options.id or (requirements.id if requirements.id in columns else None)
    keep = columns if options.keep == ALL else options.keep
    names = ([id_column] if id_column else []) + [c for c in keep if c != id_column]
    if not names:
        return {}
    table = open_table(source, TableRequest(names, form, columns=names, skip_bad=options.skip_bad)).table
    as_numbers = options.numbers and not source.has_types
    return {c: plain_numbers(table.column(c)) if as_numbers else table.column(c) for c in names}


def _feature_columns(columns: list[str], options: ReadOptions, requirements: RowRequirements, name: str) -> list[str]:
    """Return the required columns, or all columns without another role."""
    if requirements.columns is not None:
        for column in requirements.columns:
            refuse_unknown_column(column, columns, name, "feature", InputError)
        return list(requirements.columns)
    if options.unused_target is not None:
        refuse_unknown_column(options.unused_target, columns, name)
    roles = (options.target, options.group, options.order, options.weight, options.id, options.unused_target)
    with_role = {*roles, *options.drop}
    features = [c for c in columns if c not in with_role]
    if not features:
        raise InputError(f"{name} has no column besides {listing(columns)}; add columns to learn from")
    return features


def _role_values(table: Any, column: str | None, what: str) -> NDArray | None:
    """Return the values (n,) of a column of groups or times, which must be complete; None without a column."""
    if column is None:
        return None
    values = whole_column(table.column(column))
    if values.null_count:
        raise InputError(f"{what} is empty in {values.null_count:,} of {len(values):,} rows; fill or drop these rows")
    array = values.to_numpy(zero_copy_only=False)
    return np.asarray(array.tolist()) if array.dtype == object else np.asarray(array)


def row_weights(table: Any, column: str, name: str) -> NDArray[np.float64]:
    """Return the weights (n,) of a column, NaN if a cell is empty; raise InputError if the column is not numeric."""
    values = whole_column(table.column(column))
    if not is_numeric(values.type):
        raise InputError(f"weight {column!r} of {name} is not a column of numbers; name a column of weights")
    return np.asarray(values.cast("float64").to_numpy(zero_copy_only=False), np.float64)


def _divide_by_split(rows: LabeledRows) -> LabeledRows:
    """Return the rows divided by a column `split` if all its values are train, val or test; otherwise as they are."""
    if rows.y is None or "split" not in rows.rows.column_names:
        return rows
    values = whole_column(rows.rows.column("split"))
    if not is_text(values.type) or values.null_count:
        return rows
    try:
        train, test = split_masks(np.asarray(values.to_pylist()), rows.name)
    except InputError:  # a feature that is called split
        return rows
    if not train.any() or not test.any():
        return rows
    note = f"column split divides the rows: {int(train.sum()):,} for training, {int(test.sum()):,} for testing"
    rows = replace(rows, rows=rows.rows.drop_columns(["split"]), notes=(*rows.notes, note))
    test_rows = rows.at(test)
    return replace(
        rows.at(train), test_rows=test_rows.rows, test_y=test_rows.y, test_weights=test_rows.weights,
        test_kept_columns=test_rows.kept_columns, test_positions=test_rows.positions,
    )  # fmt: skip
