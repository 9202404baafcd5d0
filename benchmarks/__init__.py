"""Side-by-side measurements of kway and its peers: `kway bench [--quick] [T4 ...]`, `kway bench ladder`."""
