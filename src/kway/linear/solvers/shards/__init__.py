"""Solvers over a cluster, and the steps they keep.

class_shards.py      L-BFGS with the classes of a softmax over a crew
class_parts.py       what each member runs; trained_classes.py: on GPUs, by Ray Train
diary.py             who keeps the steps of a descent, for a run that is begun again; step_files.py: in files
"""
