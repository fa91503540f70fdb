"""Failures to watch: five short programs, of which each shows one promise, breaks something, and checks the promise.

    python -m examples.lessons                    all of them, about a minute
    python -m examples.lessons a_task_dies        one

Each prints what it does, what it expects and what it has counted, and ends with status 0 only if the promise was kept.
"""
