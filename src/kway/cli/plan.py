"""`kway plan DATA`, `kway plan --samples 1e9 --features 512 --classes 1e9`: what a job costs, before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kway.cli.options import JsonOption, as_usage, with_options
from kway.cli.output import emit_json, safe, say, show_table
from kway.errors import UsageError
from kway.tables.options import ReadOptions

if TYPE_CHECKING:
    from kway.planning.plan import Plan
    from kway.tables.row_stream import Extent

DataOption = Annotated[str | None, typer.Argument(help="Data as for fit; else name the size.")]
CountOption = Annotated[float | None, typer.Option(metavar="N", help="Such as 50000 or 1e9.")]


@with_options
def plan(
    data: DataOption = None,
    *,
    reading: ReadOptions,
    samples: CountOption = None,
    features: CountOption = None,
    classes: CountOption = None,
    neighbors: Annotated[int, typer.Option("--neighbors", "-k", min=1, help="Rows that vote.")] = 5,
    density: Annotated[float, typer.Option("--density", help="Share of numbers that are not zero.")] = 1.0,
    dtype: Annotated[str, typer.Option("--dtype", help="float32 or float64.")] = "float32",
    memory: Annotated[str | None, typer.Option("--memory", help="Such as 24GB; else what there is.")] = None,
    machines: Annotated[int, typer.Option("--machines", min=1, help="That share the rows (Ray).")] = 1,
    json: JsonOption = False,
) -> None:
    """Show what each approach to DATA, or to data of a size, costs on this machine, and which is advised."""
    from kway.planning.plan import plan as make

    sizes = (samples, features, classes)
    _check_asked(data, sizes)
    size = _asked(data, sizes, density, reading)
    with as_usage():
        found = make(
            size.n, size.d, size.K, n_neighbors=neighbors, density=size.density, dtype=dtype, memory=memory,
            machines=machines,
        )  # fmt: skip
    if json:
        emit_json(found.facts())
    else:
        show_plan(found)


def _check_asked(data: str | None, sizes: tuple[float | None, ...]) -> None:
    """Refuse what is neither data nor a size, before anything is measured."""
    given = [size for size in sizes if size is not None]
    if (data is None and len(given) < len(sizes)) or (data is not None and given):
        raise UsageError("name DATA, or all of --samples, --features and --classes")


def _asked(data: str | None, sizes: tuple[float | None, ...], density: float, reading: ReadOptions) -> Extent:
    from kway.tables.row_stream import Extent, measure_extent

    if data is not None:
        return measure_extent(data, reading)
    n, d, K = (float(value) for value in sizes if value is not None)
    return Extent(int(n), int(d), int(K), density)


def show_plan(found: Plan) -> None:
    """For people, in 80 columns."""
    from kway.planning.plan import COLUMNS

    best = next((i for i, way in enumerate(found.ways) if way is found.advised), None)
    show_table(found.title(), COLUMNS, found.rows(), best)
    for way in found.ways:
        say(f"  {way.name}: {safe(way.missing or way.gives_up)}")
    say(f"\n{safe(found.advice())}")
