"""Failures to watch: five short programs, each of which shows one promise, breaks something, and checks the promise.

    python -m examples.lessons                    all of them, about a minute
    python -m examples.lessons a_task_dies        one

Each prints its steps, what it expects and the counts, and ends with status 0 only if the promise was kept.
"""
