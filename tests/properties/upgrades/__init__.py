"""A generated matrix of upgrades: each is refused, or gives what a model in plain Python gives.

A case is a pipeline before and one after a savepoint, and records before and after it.  `driving` performs the upgrade
in this process, `model` says what the documentation says: state is kept under the names of operators, new code and
options hold from the barrier on, a retraction retracts what was sent.  State may also be converted at an earlier
barrier, and then what has changed since.

    python -m tests.properties.upgrades --examples N [--first SEED] [--only NAME] [--soak]
"""
