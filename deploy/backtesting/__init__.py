"""Backtests: a new job on the recorded input of another one."""
