"""Checks of the arguments of pipeline methods, and their conversion to operator options; one module per topic."""
