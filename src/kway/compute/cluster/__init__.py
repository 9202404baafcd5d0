"""Beyond one machine: the same calls over a Ray cluster; the only place that imports ray.

session.py     `with kway.cluster(...)`: which cluster, if any, the calls inside run on
crew.py        members made by functions and asked the same: here, in this process
hosts.py       the same as actors on the cluster's nodes, with replicas, second questions and recovery
streams.py     items through workers that live on, by a dataset of Ray's
tasks.py       work begun ahead, its results fetched later
rounds.py      one program on all members that stops to add up what they have
train.py       the same on the workers of Ray Train, which talk by torch.distributed
row_source.py  rows that another process is to hold: mapped by it from a file, or carried
ray_data.py    files read with Ray Data by whoever holds their rows
status.py      the nodes, for `kway cluster status`
"""
