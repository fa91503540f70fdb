"""The parts of every operator kind: the stage, its context, its failures, its routes and its event time."""
