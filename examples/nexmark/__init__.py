"""Nexmark, the auction benchmark, on this runtime: events, queries, and two independent ways to know the answers.

`events` makes event n from n alone; `queries` are the pipelines; `model` computes the answers in plain Python, `batch`
in Spark SQL.  Neither knows anything of the runtime or of the other.
"""
