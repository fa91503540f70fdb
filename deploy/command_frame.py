"""The code that all `causal` commands share: the parser, and how a command ends.

Exit status: 0 if the command succeeded, 2 for wrong usage or a wrong pipeline, 1 if the job failed.  For an error, one
line on standard error states the problem and its location; a traceback is never printed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from causal.errors import CausalError, PipelineError
from causal.storage.modes import private
from deploy.exit_status import FAILED, WRONG, say
from deploy.standard_streams import settle


class Parser(argparse.ArgumentParser):
    """A parser that prints one-line error messages.

    Options must be written in full; otherwise, a new option could change the meaning of an abbreviation in a user's
    script.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def error(self, message: str) -> Any:
        """End the command with one line, without the usage text that argparse would print first."""
        self.exit(WRONG, f"causal: {message}; see `{self.prog} --help`\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print a help text; raise an error if it cannot be written, which argparse itself would ignore."""
        stream = file or sys.stderr
        stream.write(message)
        stream.flush()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments.  An unknown option is refused by the parser of the command and not by that of `causal`."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._nearest(unknown[0])}")
        return parsed, unknown

    def _nearest(self, argument: str) -> str:
        """Return a suggestion for a misspelled option; empty if no option is similar."""
        from difflib import get_close_matches  # imported here because other commands do not need this module

        options = [option for action in self._actions for option in action.option_strings]
        near = get_close_matches(argument.partition("=")[0], options, n=1)
        return f"; did you mean {near[0]}?" if near else ""


def without_commands() -> tuple[Parser, Any]:
    """Return the parser of `causal`, and the object to which commands are added."""
    parser = Parser(prog="causal", description="Stateful streaming in which one failed task recovers alone.")
    return parser, parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)


def carried_out(parser: Callable[[], Parser], argv: Sequence[str] | None, template: Any = None) -> int:
    """Run the command that the arguments name; return its exit status.

    Args:
        template: the template that forks the supervisor and the agent, if there is one; it ends with the command.
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
        settle(sys.stdout)  # the error may be about standard output itself
        return say(line, FAILED if isinstance(problem, OSError) else WRONG)
    except KeyboardInterrupt:
        return 130
    finally:
        if template is not None:
            template.close()


def _without_directory() -> str:
    """Return a message if the current directory was removed, because this may cause any failure; empty if it exists."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return "the current directory was removed; change to another one"
    return ""


def _explained(problem: Exception) -> str | None:
    """Return a message for an exception that the user can correct or repair; None for a bug in the runtime."""
    from operators.tracebacks import described, own_location

    if gone := _without_directory():
        return gone
    if where := own_location(problem):  # for example `check` or `open_store` of a user-defined source or sink
        return f"{where}: {described(problem)}"
    if isinstance(problem, OSError):  # a problem with the disk, the file system or permissions
        return f"{problem.filename2 or problem.filename or 'the system'}: {problem.strerror or problem}"
    return None
