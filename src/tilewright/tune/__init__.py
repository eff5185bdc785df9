"""Tuning: every way to compute each part of a network, tried on the device, the fastest kept.

`spans` says what there is to choose, `search` looks among the candidates of one part, `survey`
shares the time among the parts, `cover` puts the fastest together to a whole network, `trials`
keeps what was timed, so that a search goes on where it was stopped; `session` is all of it up to
the `outcome`, and `device` does the work. Searches of other makers were looked at first: Optuna
brings a database layer for what is a list here, and Kernel Tuner compiles and launches kernels its
own way, unproven; what is left to do is a page.
"""
