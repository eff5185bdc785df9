"""Tuning: every way to compute each part of a network, tried on the device, the fastest kept.

`search` looks among the candidates of one part, `cover` puts the fastest parts together to a whole
network, `trials` keeps what was timed, so that a search goes on where it was stopped, and
`session` is all of it on a real device. Searches of other makers were looked at first: Optuna
brings a database layer for what is a list here, and Kernel Tuner compiles and launches kernels its
own way, unproven; what is left to do is a page.
"""
