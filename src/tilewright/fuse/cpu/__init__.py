"""The whole network as one machine-code function for this CPU.

`schedule` decides (plain data), `generate` and `groups` write it out with `code`, `build` compiles
and keeps it, `run` makes it a callable, `explain` and `peak` say how good it is.
"""
