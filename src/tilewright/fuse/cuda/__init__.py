"""The whole network as one CUDA kernel, or the fewest that make sense.

`operations` reads a network's layers as sums, pooling and softmax; `cut` groups them into kernels;
`pictures`, `sums` and `stack` say how a group lies in shared memory and who computes what, and
`arrange` chooses, by estimates whose constants stand in `generations`; `packing` makes tables and
orders weights; `program` turns a plan into the typed list of its `steps`; `dense` and `steps_dense`
do all that for large fully connected layers, over the batch; `emit*` print the steps around the
building blocks in `*.cuh`; `run` compiles and launches them. All but `run` and `peak` is plain
arithmetic on shapes and needs no GPU. See `../README.md`.
"""
