"""One program on the workers of Ray Train, which talk by torch.distributed: where nodes have GPUs, or torch at all.

    train_together(programs, folder, wire)   programs[rank](talk, device) on each worker, until all are done
    wire_for(workers)                        NCCL between GPUs where each worker has one of its own, else gloo, over
                                             shared GPUs or, where there are none, processors

What they learn they leave in files, which every node sees. A worker that dies ends the others; Ray Train starts all of
them again, and they go on from those files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kway.compute.cluster.rounds import Talk
from kway.compute.cluster.session import current, import_ray
from kway.errors import ClusterError

Program = Callable[[Callable[[Callable[[Any], None]], Talk], str], None]  # (tell -> talk, device) -> files

MOST_FAILURES = 8  # workers that may die before it is an error
_CORES = 0.5  # of a worker beside its GPU: it waits for it


class Wire(NamedTuple):
    """What workers compute on, what they talk by, and where the numbers are that they tell."""

    device: str
    backend: str
    told_from: str


OWN_GPUS, SHARED_GPUS = Wire("cuda", "nccl", told_from="cuda"), Wire("cuda", "gloo", told_from="cpu")
PROCESSORS = Wire("cpu", "gloo", told_from="cpu")


def n_gpus() -> int:
    """GPUs of the cluster, 0 without one."""
    return 0 if current() is None else int(import_ray().cluster_resources().get("GPU", 0))


def wire_for(workers: int) -> Wire:
    """NCCL refuses two workers on one GPU: they talk by gloo."""
    gpus = n_gpus()
    if not gpus:
        return PROCESSORS
    return OWN_GPUS if workers <= gpus else SHARED_GPUS


def train_together(programs: Sequence[Program], folder: Path, wire: Wire) -> None:
    """Every program on a worker of its own, all at once."""
    ray = import_ray()
    try:
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer
    except ImportError as error:
        raise ClusterError(
            f"a fit on the cluster's GPUs needs Ray Train ({error}); pip install 'ray[train]'"
        ) from error

    kept = [ray.put(program) for program in programs]
    gpu = wire is not PROCESSORS
    share = {"GPU": 1 / -(-len(kept) // n_gpus())} if gpu else {}
    trainer = TorchTrainer(
        _work,
        train_loop_config={"programs": kept, "wire": tuple(wire)},
        scaling_config=ScalingConfig(num_workers=len(kept), use_gpu=gpu, resources_per_worker={"CPU": _CORES} | share),
        run_config=RunConfig(storage_path=str(folder), failure_config=FailureConfig(max_failures=MOST_FAILURES)),
        torch_config=TorchConfig(backend=wire.backend),
    )
    try:
        trainer.fit()
    except Exception as error:  # Ray Train raises what its workers did, in wrappers that change with its version
        raise ClusterError(f"the workers of Ray Train failed: {str(error).strip().splitlines()[-1]}") from error


def _work(config: dict[str, Any]) -> None:
    """What runs on each worker."""
    import ray.train

    from kway.compute.gpu.linear.torch_talk import TorchTalk

    rank = ray.train.get_context().get_world_rank()
    wire = Wire(*config["wire"])
    program: Program = ray.get(config["programs"][rank])
    program(lambda tell: TorchTalk(wire.told_from, tell), wire.device)
