"""GPU rungs: one file an idea, with its kernel beside it. They run on CUDA and OpenCL alike."""
