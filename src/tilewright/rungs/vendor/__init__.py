"""Other people's kernels, as yardsticks."""
