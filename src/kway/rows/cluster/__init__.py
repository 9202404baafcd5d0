"""Fits and searches over a Ray cluster. No other package of kway imports ray.

session.py         `with kway.cluster(...)`: the settings of the cluster that calls inside use, and its nodes
shards.py          objects that receive the same calls, in this process or as actors with replicas and recovery
linear_passes.py   passes of a linear model over rows on the nodes, and the last weights of an interrupted fit
folder.py          rows of a folder that the nodes read with Ray Data
work.py            items streamed through workers, and calls whose results are fetched later
"""
