"""The profiler: a recorded run summed up, its wall time divided, its kernels against the ceilings.

Events stream from a trace into sinks (`tally`, `order`, `wall`, and a timeline's writer), so that a
run of any length is profiled in bounded memory. `session` does the job and gives a `Profile`, plain
data that is printed, saved and compared.
"""
