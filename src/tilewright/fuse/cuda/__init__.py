"""The whole network as one CUDA kernel, or the fewest that make sense.

`operations` reads a network's layers as sums, pooling and softmax; `cut` groups them into kernels;
`pictures`, `sums` and `stack` decide how a group lies in shared memory and who computes what;
`dense` does the same for large fully connected layers, over the batch; `emit` writes the kernels'
text around the building blocks in `*.cuh`; `run` compiles and launches them. All but `run` is
plain arithmetic on shapes and needs no GPU.
"""
