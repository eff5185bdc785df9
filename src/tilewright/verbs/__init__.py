"""The verbs as functions: `tilewright.run`, `ladder`, `profile`, `explain` and `verify`.

A module each: typed keyword arguments with their defaults, the work, and the result that comes
back. The commands of the same names parse words into these arguments and print these results, so
that what a command can do, a program can; `tests/verbs/test_options.py` holds signatures and
parsers together. Nothing is printed here, and no file is written but a timeline that is asked for.
"""
