"""Oracles: what each operator must give, in plain Python written from the guide, and random pipelines to compare."""
