"""Modules of compute/gpu import torch, which only `make test-gpu` installs: without it there is nothing to collect."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["src/kway/compute/gpu/*"]
