"""The whole network as one machine-code function for this CPU.

`schedule` decides (plain data) with `flow`, `together`, `grouped`, `tiles`, `winograd` and
`pictures`; `generate` writes it out: groups of layers (`convolution`, `chunks` with `transforms`,
`dense`, `pooling`, `joins`, `groups`) and the entries that call them, for `many` images or a `few`,
with `code` and `elementary`. `build` compiles and keeps it, `parameters` packs the weights. `run`
makes it a callable: `cost` and `shares` divide a batch between the schedules, `team` and `tickets`
between the cores. `explain` and `peak` say how good it is.
"""
