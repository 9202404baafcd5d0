"""`kway plan`: the memory, disk space and time that each kind of classifier would need, before any work starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kway.cli.options import JsonOption, with_options
from kway.cli.output import emit_json, safe, say, show_table
from kway.errors import InputError, UsageError
from kway.tables.read_options import ReadOptions

if TYPE_CHECKING:
    from kway.planning.plan import Plan
    from kway.tables.row_stream import Extent


@with_options
def plan(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="Rows in any format that `kway fit` accepts. Without DATA, pass --samples, --features and --classes.",
        ),
    ] = None,
    *,
    reading: ReadOptions,
    samples: Annotated[
        float | None, typer.Option("--samples", metavar="N", help="Number of training rows, such as 50000 or 1e9.")
    ] = None,
    features: Annotated[
        float | None, typer.Option("--features", metavar="N", help="Number of features per row.")
    ] = None,
    classes: Annotated[float | None, typer.Option("--classes", metavar="N", help="Number of classes.")] = None,
    neighbors: Annotated[int, typer.Option("--neighbors", "-k", min=1, help="Number of neighbors that vote.")] = 5,
    density: Annotated[
        float,
        typer.Option(
            "--density", help="Fraction of values that are not 0. Less than 1 for sparse rows, such as word counts."
        ),
    ] = 1.0,
    dtype: Annotated[
        str, typer.Option("--dtype", help="Data type of the features in memory: float32 or float64.")
    ] = "float32",
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory", help="Memory that may be used, such as 24GB. By default, the memory that is free now."
        ),
    ] = None,
    machines: Annotated[
        int, typer.Option("--machines", min=1, help="Number of machines of a Ray cluster that share the rows.")
    ] = 1,
    json: JsonOption = False,
) -> None:
    """Estimate how much memory, disk space and time each kind of classifier needs on this machine, and recommend one.

    The size of the problem is read from DATA, or given with --samples,
    --features and --classes. No model is fitted.

    Example: kway plan --samples 1e6 --features 512 --classes 1000
    """
    from kway.planning.plan import plan as make_plan

    sizes = (samples, features, classes)
    size = _size(data, sizes, density, reading)
    try:
        found = make_plan(
            size.n, size.d, size.K, n_neighbors=neighbors, density=size.density, dtype=dtype, memory=memory,
            machines=machines,
        )  # fmt: skip
    except InputError as error:
        raise UsageError(str(error)) from error
    if json:
        emit_json(found.facts())
    else:
        show_plan(found)


def _size(data: str | None, sizes: tuple[float | None, ...], density: float, reading: ReadOptions) -> Extent:
    """Return the size of DATA, or the one that --samples, --features and --classes give."""
    from kway.tables.row_stream import Extent, measure_extent

    known = [float(size) for size in sizes if size is not None]
    if (data is None and len(known) < len(sizes)) or (data is not None and known):
        raise UsageError("give either DATA, or all of --samples, --features and --classes")
    if data is not None:
        return measure_extent(data, reading)
    n, d, K = known
    return Extent(int(n), int(d), int(K), density)


def show_plan(found: Plan) -> None:
    """Print one line per kind of classifier, whether each is exact, and the advice."""
    from kway.planning.plan import COLUMNS

    best = next((i for i, way in enumerate(found.ways) if way is found.advised), None)
    show_table(found.title(), COLUMNS, found.rows(), best)
    for way in found.ways:
        say(f"  {way.name}: {safe(way.missing or way.quality)}.")
    say(f"\n{safe(found.advice())}")
