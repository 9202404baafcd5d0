"""Modules of compute/gpu import torch and Triton, which `make test-gpu` installs: without them nothing is collected."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") and find_spec("triton") else ["src/kway/compute/gpu/*"]
