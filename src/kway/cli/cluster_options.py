"""Options of the verbs that can run over a Ray cluster: --cluster, --address."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Annotated

import typer

ClusterOption = Annotated[bool, typer.Option("--cluster", help="Run over a Ray cluster: the one running here.")]
AddressOption = Annotated[
    str | None,
    typer.Option("--address", help="Another cluster: host:port, ray://...; local: one for this job, on this machine."),
]


@contextmanager
def over_cluster(cluster: bool, address: str | None) -> Iterator[None]:
    """Inside, what can be spread runs over the cluster asked for; here where none was."""
    if not cluster and address is None:
        yield
        return
    from kway.compute.cluster.session import cluster as entered

    with redirect_stdout(sys.stderr), entered(address or "auto"):  # Ray tells on stdout who died
        yield
