"""Fits and searches over a Ray cluster. No other package of kway imports ray.

session.py         `with kway.cluster(...)`: the settings of the cluster that calls inside use, and its nodes
shards.py          objects that receive the same calls, in this process or as actors with replicas and recovery
linear_passes.py   passes of a linear model over rows on the nodes, and the last weights of an interrupted fit
work.py            calls on the nodes, and items streamed through workers
"""
