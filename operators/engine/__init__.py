"""The translation of a pipeline into the chains that its tasks run: the plan, fusion, the stage tree and the chain."""
