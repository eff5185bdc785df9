"""The whole network as one machine-code function for this CPU.

`schedule` decides (plain data), `generate` writes LLVM code, `build` compiles and keeps it.
"""
