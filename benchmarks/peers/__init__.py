"""The same work on this project and on what a Python user would otherwise pick, in turn, in one run.

`comparison` is the command, `programs` what runs: one program per system, each in an environment of its own.
Programs use the standard library and their system alone, so this module must stay empty.
"""
