"""The long campaign: counts a kind of problem, every silent miss, and where scikit-learn is faster.

    python -m optimum_attack 2000 --processes 14 --seconds 300
    python -m optimum_attack 300 --larger

Exits with 1 where a fit was silently above tol.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

from optimum_attack.campaign import run, told

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="optimum_attack")
    parser.add_argument("n", type=int, help="problems")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this long")
    parser.add_argument("--larger", action="store_true", help="beyond the oracle: long runs stand for the optimum")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.n)
    found = run(seeds, given.processes, given.seconds, partial(print, flush=True), given.larger)
    told(found, given.n)
    sys.exit(any(v["missed"] for v in found))
