"""The objective F(theta) = alpha R(W) + mean_i w_i loss(f_i, y_i), theta = [W b] (R, d + 1).

objective.py      Objective: value and gradient, a block of rows at a time; fused kernel, BLAS or CSR
fused_pass.py     what a fused kernel takes and gives back
sparse_rows.py    CSR rows with their transpose, for both products of a sparse gradient; rows made dense
distinct_rows.py  equal rows with equal targets become one row that weighs as many
centred_rows.py   dense rows about their mean, which a bias takes up
row_span.py       n < d: the same problem in as many columns as there are rows, and the way back
own_units.py      columns in units of about their own size, for losses without a penalty
bends.py          products with the Hessian, which is never written down
on_cluster.py     ClusterObjective: the same where the rows live on several machines
folder_rows.py    FolderObjective: the same where the rows lie in a folder that a cluster reads
class_shard.py    ClassShard: some classes of a softmax, the others elsewhere
class_shard_on_device.py  the same, its passes on a device
on_device.py      DeviceObjective: the same where the rows live on a GPU
curvature.py      what Hessians are made of: second derivatives a row and score, weighted mean squares
"""
