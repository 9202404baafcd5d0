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
            "--address", help="Address of the cluster, host:port or ray://host:port; auto: the cluster of this machine."
        ),
    ] = "auto",
    json: JsonOption = False,
) -> None:
    """Show the nodes of a Ray cluster: whether they are alive, and their cores, memory, GPUs and running actors.

    Example: kway cluster status --address 10.0.0.5:6379
    """
    from kway.rows.cluster.session import node_status

    nodes = node_status(address)
    if json:
        emit_json({"nodes": [node._asdict() for node in nodes]})
        return
    up = [node for node in nodes if node.alive]
    say(f"{len(up)} of {count(len(nodes), 'node')} alive, {sum(node.cores for node in up):g} cores")
    rows = []
    for n in nodes:
        alive = "yes" if n.alive else "no"
        size = f"{n.cores:g}", f"{n.memory / 2**30:.1f} GiB", f"{n.gpus:g}", str(n.actors)
        rows.append((n.node, n.address, alive, *size))
    show_table("Nodes", ("node", "address", "alive", "cores", "memory", "GPUs", "Ray actors"), rows)
