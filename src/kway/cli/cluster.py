"""`kway cluster status`: the nodes of a Ray cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from kway.cli.options import JsonOption
from kway.cli.output import emit_json, say, show_table

app = typer.Typer(help="The machines of a Ray cluster.", no_args_is_help=True)


@app.callback()
def machines() -> None:
    """The machines of a Ray cluster."""


@app.command()
def status(
    address: Annotated[
        str, typer.Option("--address", help="auto: the one running here; or host:port, ray://...")
    ] = "auto",
    json: JsonOption = False,
) -> None:
    """Show the nodes of a cluster: alive or not, cores, memory, GPUs, actors."""
    from kway.rows.cluster.session import node_status

    nodes = node_status(address)
    if json:
        emit_json({"nodes": [node._asdict() for node in nodes]})
        return
    alive = [node for node in nodes if node.alive]
    say(f"{len(alive)} of {len(nodes)} nodes alive, {sum(node.cores for node in alive):g} cores")
    rows = [
        (
            n.node,
            n.address,
            "yes" if n.alive else "no",
            f"{n.cores:g}",
            f"{n.memory / 2**30:.1f} GiB",
            f"{n.gpus:g}",
            str(n.actors),
        )
        for n in nodes
    ]
    show_table("Nodes", ("node", "address", "alive", "cores", "memory", "GPUs", "actors"), rows)
