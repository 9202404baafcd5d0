"""Side-by-side measurements of kway and its peers: `python -m benchmarks.run [--only T4] [--quick]`."""
