"""The frame of the `causal` command: its parser, and how a command ends.

Exit status 0: done; 2: bad usage or a bad pipeline; 1: the job failed.  Either way one line on standard
error names the problem and the place, never a traceback.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from causal.errors import CausalError, PipelineError
from causal.storage.modes import private
from deploy.printable import one_line
from deploy.standard_streams import settle

DONE, FAILED, WRONG = 0, 1, 2


class Parser(argparse.ArgumentParser):
    """A parser whose refusals are one line.

    Options are written in full, as a new one could otherwise change what the script of a user says.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def error(self, message: str) -> Any:
        """End the command with one line, without the usage that argparse puts before it."""
        self.exit(WRONG, f"causal: {message}; see `{self.prog} --help`\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print a help; one that cannot be written fails, which argparse itself ignores."""
        stream = file or sys.stderr
        stream.write(message)
        stream.flush()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and has the command, not `causal`, refuse an unknown option that was given to it."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._nearest(unknown[0])}")
        return parsed, unknown

    def _nearest(self, argument: str) -> str:
        """Return a suggestion for a misspelled option; "" where none is alike."""
        from difflib import get_close_matches  # which other commands need not load

        options = [option for action in self._actions for option in action.option_strings]
        near = get_close_matches(argument.partition("=")[0], options, n=1)
        return f"; did you mean {near[0]}?" if near else ""


def without_commands() -> tuple[Parser, Any]:
    """Return the parser of `causal`, and what its commands are added to."""
    parser = Parser(prog="causal", description="Stateful streaming in which one failed task recovers alone.")
    return parser, parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)


def carried_out(parser: Callable[[], Parser], argv: Sequence[str] | None, template: Any = None) -> int:
    """Run the command that the arguments name; returns its exit status.

    Args:
        template: what forks the supervisor and the agent, if there is one; it is ended with the command.
    """
    try:
        arguments = parser().parse_args(argv)
        arguments.template = template
        act: Callable[[argparse.Namespace], int] = arguments.act
        with private():
            status = act(arguments)
            sys.stdout.flush()
            return status
    except PipelineError as problem:
        return say(_without_directory() or str(problem), WRONG)
    except CausalError as problem:
        return say(str(problem), FAILED)
    except BrokenPipeError:
        settle(sys.stdout)
        return FAILED
    except Exception as problem:
        line = _explained(problem)
        if line is None:
            raise
        settle(sys.stdout)  # which it may be about
        return say(line, FAILED if isinstance(problem, OSError) else WRONG)
    except KeyboardInterrupt:
        return 130
    finally:
        if template is not None:
            template.close()


def _without_directory() -> str:
    """Return the line about a current directory that was removed, whatever failed for it; empty if it is there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return "the current directory was removed; change to another one"
    return ""


def _explained(problem: Exception) -> str | None:
    """Return the line of an exception that is for the user to correct or repair; None of a bug of the runtime."""
    from operators.tracebacks import described, own_location

    if gone := _without_directory():
        return gone
    if where := own_location(problem):  # `check` or `open_store` of a source or sink of the user's own
        return f"{where}: {described(problem)}"
    if isinstance(problem, OSError):  # a disk, a file system, permissions
        return f"{problem.filename or 'the system'}: {problem.strerror or problem}"
    return None


def say(line: str, status: int) -> int:
    """Print one line on standard error, and return the exit status."""
    print(f"causal: {one_line(line)}", file=sys.stderr)
    return status
