"""A class: a folder of plain files, students who hand in kernels, workers who judge them.

`course` reads the folder, `store` keeps all that happens in one SQLite file, `workers` judge what
waits by `judging`, and `ranking` says who stands where. `web` is what students and teachers see.
"""
