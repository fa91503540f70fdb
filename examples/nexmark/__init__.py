"""Nexmark, the auction benchmark, on this runtime: events, queries, and two independent computations of the answers.

`events` makes event n from n alone; `queries` are the pipelines; `model` computes the answers in plain Python, `batch`
in Spark SQL.  Neither of them uses the runtime or the other.
"""
