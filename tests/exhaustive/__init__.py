"""The exhaustive small world: every interleaving of tiny jobs with the production core.

Page: docs/design/0004-exhaustive-world.md.
"""
