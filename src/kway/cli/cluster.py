"""`kway cluster status`: the nodes of a Ray cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from kway.cli.options import JsonOption
from kway.cli.output import emit_json, say, show_table
from kway.text_tables import count

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
        typer.Option(
            "--address",
            help="Address of the cluster: host:port, ray://host:port, or 'auto' for the cluster of this machine.",
        ),
    ] = "auto",
    json: JsonOption = False,
) -> None:
    """Show the nodes of a Ray cluster: their status, cores, memory, GPUs and running actors.

    Example: kway cluster status --address 10.0.0.5:6379
    """
    from kway.rows.cluster.session import node_status

    nodes = node_status(address)
    if json:
        emit_json({"nodes": [node._asdict() for node in nodes]})
        return
    alive = [node for node in nodes if node.alive]
    say(f"{len(alive)} of {count(len(nodes), 'node')} alive, {sum(node.cores for node in alive):g} cores")
    rows = []
    for node in nodes:
        status = "yes" if node.alive else "no"
        size = f"{node.cores:g}", f"{node.memory / 2**30:.1f} GiB", f"{node.gpus:g}", str(node.actors)
        rows.append((node.node, node.address, status, *size))
    show_table("Nodes", ("node", "address", "alive", "cores", "memory", "GPUs", "Ray actors"), rows)
