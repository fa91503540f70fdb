"""The parts that all operator kinds share: stages, their context, failure handling, routes and event time."""
