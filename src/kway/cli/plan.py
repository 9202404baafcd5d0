"""`kway plan DATA`, `kway plan --samples 1e9 --features 512 --classes 1e9`: what a job costs, before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kway.cli.options import JsonOption, reads_data
from kway.cli.output import emit_json, safe, say, show_table
from kway.cli.usage import as_usage
from kway.errors import UsageError

if TYPE_CHECKING:
    from kway.data.extent import Extent
    from kway.data.reading import ReadOptions
    from kway.planning.plan import Plan

DataOption = Annotated[str | None, typer.Argument(help="Data as for fit; else name the size.")]
CountOption = Annotated[float | None, typer.Option(metavar="N", help="Such as 50000 or 1e9.")]


@reads_data
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
    calibrate: Annotated[bool, typer.Option("--calibrate", help="Measure this machine anew: seconds.")] = False,
    json: JsonOption = False,
) -> None:
    """Show what each way to learn from DATA, or from data of a size, costs here, and which is advised."""
    from kway.planning.plan import plan as make
    from kway.planning.rates import machine_rates

    sizes = (samples, features, classes)
    alone = calibrate and data is None and sizes == (None, None, None)
    if not alone:
        _check_asked(data, sizes)
    rates = machine_rates(again=calibrate)
    if alone:
        _show_rates(rates.record(), json)
        return
    size = _asked(data, sizes, density, reading)
    with as_usage():
        found = make(
            size.n, size.d, size.K, n_neighbors=neighbors, density=size.density, dtype=dtype, memory=memory,
            machines=machines, rates=rates,
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
    from kway.data.extent import Extent, extent_of

    if data is not None:
        return extent_of(data, reading)
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


def _show_rates(rates: dict[str, float], json: bool) -> None:
    if json:
        emit_json({"rates": rates})
    else:
        show_table("This machine, a second", ("what", "how many"), [(k, f"{v:.3g}") for k, v in rates.items()])
