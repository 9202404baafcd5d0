"""`kway cluster status`: the nodes of a Ray cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from kway.cli.options import flag
from kway.cli.output import count, emit_json, say, show_table

app = typer.Typer(no_args_is_help=True)


@app.callback()
def cluster() -> None:
    """Show the state of a Ray cluster.

    Example: kway cluster status
    """


@app.command()
def status(
    address: Annotated[
        str,
        typer.Option("--address", help="Address of the cluster: host:port or ray://...; auto: that of this machine."),
    ] = "auto",
    json: Annotated[bool, flag("--json", "Print the nodes as one JSON object.")] = False,
) -> None:
    """Show the nodes of a cluster: whether they are alive, and their cores, memory, GPUs and Ray actors.

    Example: kway cluster status --address 10.0.0.5:6379
    """
    from kway.rows.cluster.session import node_status

    nodes = node_status(address)
    if json:
        emit_json({"nodes": [node._asdict() for node in nodes]})
        return
    alive = [node for node in nodes if node.alive]
    say(f"{len(alive)} of {count(len(nodes), 'node')} alive, {sum(node.cores for node in alive):g} cores")
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
    show_table("Nodes", ("node", "address", "alive", "cores", "memory", "GPUs", "Ray actors"), rows)
