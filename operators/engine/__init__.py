"""Turns a pipeline into the chains that its tasks run: the plan, fusion, the tree of stages, the chain."""
