"""How fast this machine is: measured once in some seconds, kept in the cache folder a machine and a set of libraries.

known()            what is kept; the defaults where nothing is (of 2 busy AVX-512 cores): never measures
known_with_gpu()   the same, with the GPU's rates measured now where there is one and nothing of it is kept
machine_rates()    what is kept, measured now where nothing is, or where `again`
"""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from kway.compute.threads import cores
from kway.data.outputs.atomic import replacing
from kway.data.outputs.cache_folder import cache_folder


@dataclass(frozen=True)
class Rates:
    """A second's worth of each kind of work, on all cores unless said otherwise."""

    product: float = 110e9  # operations of a float32 matrix product
    memory: float = 10e9  # bytes read and written
    fresh: float = 1e9  # bytes of new memory touched for the first time
    exps: float = 0.4e9  # exponentials
    sparse: float = 0.5e9  # values times scores of a CSR product
    assign: float = 60e9  # operations while rows find their nearest of many centres
    certify: float = 25e6  # values indexed by an exact search that proves
    certified: float = 300e6  # rows passed by such a search, where they have structure
    cells: float = 15e6  # values indexed by landmarks
    probed: float = 1e9  # values of the rows in probed cells
    bytes_scan: float = 10e9  # values passed where rows are one byte each
    gpu: float = 0.0  # operations of a product in bfloat16; 0: there is no GPU
    gpu_full: float = 0.0  # of a product in float32
    gpu_sent: float = 0.0  # bytes sent to it
    gpu_memory: float = 0.0  # bytes that it has; no rate
    cores: int = 2

    def record(self) -> dict[str, float]:
        """As plain facts."""
        return asdict(self)

    @staticmethod
    def of(facts: Any) -> Rates | None:
        """The rates of a kept file; None where it holds anything else."""
        names = {field.name for field in fields(Rates)}
        if not isinstance(facts, dict) or set(facts) != names:
            return None
        if not all(isinstance(v, (int, float)) and 0 <= v < math.inf for v in facts.values()):
            return None
        if not all(v > 0 for name, v in facts.items() if name not in GPU_NAMES):
            return None
        return Rates(**facts)


GPU_NAMES = ("gpu", "gpu_full", "gpu_sent", "gpu_memory")


def known() -> Rates:
    """What is kept of this machine and of its GPU, else the defaults."""
    rates = _kept(_path()) or Rates(cores=cores())
    there = None if rates.gpu else _kept(_gpu_path())
    if there is None:
        return rates
    return Rates.of(rates.record() | {name: getattr(there, name) for name in GPU_NAMES}) or rates


def known_with_gpu() -> Rates:
    """`known`; where there is a GPU of which nothing is, that is measured now, in a second, and kept."""
    rates = known()
    if rates.gpu:
        return rates
    from kway.planning.calibrate import gpu_rates

    found = Rates.of(rates.record() | gpu_rates()._asdict())
    if found is None or not found.gpu:
        return rates
    _keep(found, _gpu_path())
    return found


def machine_rates(again: bool = False) -> Rates:
    """What is kept of this machine, measured first where nothing is."""
    kept = None if again else _kept(_path())
    if kept is not None:
        return kept
    from kway.planning.calibrate import calibrate

    found = calibrate()
    _keep(found, _path())
    return found


def _gpu_path() -> Path:
    return _path().with_suffix(".gpu.json")


def _path() -> Path:
    from kway.planning.machine import key

    return cache_folder() / "rates" / f"{key()}.json"


@cache
def _kept(path: Path) -> Rates | None:
    """What a file keeps; rates that an earlier version measured beside them are passed over."""
    try:
        facts = json.loads(path.read_text())
        names = Rates().record()
        return Rates.of({name: facts[name] for name in facts if name in names} if isinstance(facts, dict) else facts)
    except (OSError, ValueError):
        return None


def _keep(rates: Rates, path: Path) -> None:
    """Write them; where that is not possible, say so and go on."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as draft:
            draft.write_text(json.dumps(rates.record(), indent=1) + "\n")
    except OSError as error:
        warnings.warn(f"the rates of this machine are not kept in {path}: {error}; set KWAY_CACHE", stacklevel=3)
    _kept.cache_clear()
