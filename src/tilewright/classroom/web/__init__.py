"""The class as students and teachers see it: pages, and an API for programs.

`app` lists every path and who may ask for it; `visit` is the door that all of them go through.
Pages can be read without scripts; a script of some lines keeps them up to date.
"""
