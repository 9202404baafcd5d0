"""Beyond one machine: the same calls over a Ray cluster; the only place that imports ray.

session.py   `with kway.cluster(...)`: which cluster, if any, the calls inside run on; its nodes
shards.py    objects that are all asked the same: in this process, or as actors with replicas and recovery
passes.py    passes of a linear model over rows on the nodes, and the last weights of an interrupted fit
folder.py    rows of a folder that the nodes read with Ray Data
work.py      items streamed through workers, and calls whose results are fetched later
"""
