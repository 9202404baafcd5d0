"""A program's fellows reached by torch.distributed: `all_reduce` between processes, by NCCL on GPUs or by gloo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from kway.compute.cluster.rounds import Talk


class TorchTalk(Talk):
    """The processes of the default group; the first of them tells where all stand."""

    def __init__(self, device: str, tell: Callable[[Any], None]) -> None:
        self._device, self._tell = torch.device(device), tell

    def total(self, part: NDArray) -> NDArray:
        """Everybody's sum."""
        return self._reduced(part, dist.ReduceOp.SUM)

    def most(self, part: NDArray) -> NDArray:
        """Everybody's largest."""
        return self._reduced(part, dist.ReduceOp.MAX)

    def report(self, what: Any) -> bool:
        """Told once everybody is there."""
        dist.barrier()
        if dist.get_rank() == 0:
            self._tell(what)
        return False

    def _reduced(self, part: NDArray, how: Any) -> NDArray:
        held = torch.from_numpy(np.array(part)).to(self._device)
        dist.all_reduce(held, how)
        return np.asarray(held.cpu().numpy())
