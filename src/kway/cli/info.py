"""`kway info MODEL`: what a model file holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kway.cli.options import JsonOption, ModelArgument
from kway.cli.output import emit_json, plain, say, show_table
from kway.text_tables import clipped

if TYPE_CHECKING:
    from kway.modelfile import ModelInfo


def info(
    model: ModelArgument,
    verify: Annotated[bool, typer.Option("--verify", help="Read every byte and check the digest.")] = False,
    json: JsonOption = False,
) -> None:
    """Show the class, parameters, labels and arrays of a model file."""
    from kway import modelfile

    held = modelfile.info(model)
    if verify:
        modelfile.verify(model)
    if json:
        values = {k: v for k, v in vars(held).items() if k != "tensors"}
        emit_json({**values, "tensors": [vars(t) for t in held.tensors], "verified": verify or None})
    else:
        show_info(held, verify)


def show_info(held: ModelInfo, verified: bool) -> None:
    """The same for people."""
    say(f"[bold]{held.class_name}[/], {held.n_classes:,} classes, {held.n_features:,} features, {held.n_bytes:,} bytes")
    say(f"written by kway {held.kway_version}, format {held.format_version}{', content verified' if verified else ''}")
    notes = {k: v for k, v in held.notes.items() if v is not None}
    for title, values in (("Notes", notes), ("Parameters", held.params), ("Facts", held.facts)):
        if values:
            show_table(title, ("name", "value"), [(k, clipped(str(plain(v)), 60)) for k, v in values.items()])
    rows = [(t.name, t.dtype, " x ".join(map(str, t.shape)) or "scalar", f"{t.end - t.start:,}") for t in held.tensors]
    show_table("Arrays", ("name", "dtype", "shape", "bytes"), rows)
