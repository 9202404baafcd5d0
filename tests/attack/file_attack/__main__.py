"""The long campaign: prints counts as it goes, and exits with 1 where a file met a bad end."""

from __future__ import annotations

import argparse
import sys
from functools import partial

from file_attack.campaign import run

parser = argparse.ArgumentParser(prog="file_attack")
parser.add_argument("n", type=int, help="files to alter")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--seconds", type=float, help="stop after this long")
parser.add_argument("--bounds", action="store_true", help="kernels check every index (slow to start)")
parser.add_argument("--keep", help="a folder for files that met a bad end")
given = parser.parse_args()
counts = run(given.n, given.seed, given.seconds, given.bounds, given.keep, partial(print, flush=True))
print(counts)
for bad in counts.bad:
    print(bad)
sys.exit(bool(counts.bad))
