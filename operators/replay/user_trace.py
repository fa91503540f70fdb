"""A trace of the user's code during one event: each line with its variables, and what it asks that is not recorded.

Two traces of the same event show where values begin to differ (`operators.replay.difference`). Values are compared as
text without addresses, and sets in sorted order, so that only what the code makes of an order counts.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from datetime import date
from hashlib import blake2b
from random import Random
from types import CodeType, FrameType, ModuleType
from typing import Any

from operators.replay.search import set_trace
from operators.tracebacks import OURS, of_a_user, without_addresses

STEPS_MAX = 20_000
"""The steps of a trace; later ones are not kept."""
SHOWN_CHARACTERS = 300
CHARACTERS_MAX = 100_000
"""The characters of a value that are compared."""
VARIABLES_MAX = 200
FRAMES_MAX = 60
"""The frames that are searched for the user's line that calls a library."""

CLOCK, RANDOM, ORDER, ENVIRONMENT, FILE, NETWORK, PROCESS = (
    "clock", "random", "order", "environment", "file", "network", "process",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the user's code.

    Attributes:
        event: `call`, `line` (before it is executed) or `return` (also `yield`).
        frame: the number of the call of the function; a generator keeps its number.
        values: the variables before the step, as text; `return` is what is returned or yielded. `self.x`, `global x`.
        ordered: names of variables that are sets.
    """

    event: str
    file: str
    line: int
    function: str
    frame: int
    values: dict[str, str]
    ordered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """Something that user code asks and that is not recorded.

    Attributes:
        kind: `clock`, `random`, `order`, `environment`, `file`, `network` or `process`.
        name: the function, as `time.time`.
        detail: the variable, file or address that it is about.
    """

    kind: str
    name: str
    detail: str
    file: str
    line: int
    function: str


@dataclass(slots=True)
class UserTrace:
    """The steps of the user's code, and its questions, while they are observed.

    Attributes:
        steps: the steps, in order.
        asked: question → how often it was asked.
        uses: `file:line of the function` → name of an attribute or global → the lines that use it.
    """

    steps: list[Step] = field(default_factory=list)
    asked: Counter[Question] = field(default_factory=Counter)
    uses: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    asking: bool = False
    _frames: dict[int, tuple[int, FrameType]] = field(default_factory=dict)

    def begin(self, lines: bool) -> None:
        """Observe questions from now on, and lines if asked for."""
        self.asking = True
        sys.setprofile(self._profile)
        if lines:
            set_trace(self._trace)

    def end(self) -> None:
        """Observe nothing any more."""
        set_trace(None)
        sys.setprofile(None)
        self.asking = False

    # Lines.

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event != "call" or not of_a_user(frame.f_code.co_filename):
            return None
        self._add(frame, event, argument)
        return self._trace_lines

    def _trace_lines(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event in ("line", "return"):
            self._add(frame, event, argument)
        return self._trace_lines

    def _add(self, frame: FrameType, event: str, argument: Any) -> None:
        if len(self.steps) >= STEPS_MAX:
            return
        number, _ = self._frames.setdefault(id(frame), (len(self._frames), frame))
        code = frame.f_code
        place = f"{code.co_filename}:{code.co_firstlineno}"
        if place not in self.uses:
            self.uses[place] = lines_of_names(code)
        variables = _variables(frame)
        values = {name: said(value) for name, value in variables.items()}
        if event == "return":
            values["return"] = said(argument)
        ordered = tuple(name for name, value in variables.items() if isinstance(value, (set, frozenset)))
        self.steps.append(
            Step(event, code.co_filename, frame.f_lineno, code.co_qualname, number, values, ordered)  # type: ignore[attr-defined,unused-ignore]
        )

    # Questions.

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            kind, name = _kind_of_builtin(argument)
            if kind:
                self._ask(kind, name, "", frame)
        elif event == "call" and frame.f_back is not None:
            code = frame.f_code
            if code.co_name == "__getitem__" and frame.f_globals.get("__name__") == "os":
                key = frame.f_locals.get("key")
                self._ask(ENVIRONMENT, "os.environ", key if isinstance(key, str) else "", frame.f_back)

    def audited(self, event: str, arguments: tuple[Any, ...], frame: FrameType) -> None:
        """Count a file, a connection or a process that a frame opens, as a hook of the interpreter reports it."""
        if not self.asking:
            return
        kind = AUDITED.get(event)
        if kind is not None:
            detail = next((str(each) for each in arguments if isinstance(each, (str, bytes, tuple, list))), "")
            self._ask(kind, event if event != "open" else "open()", detail[:SHOWN_CHARACTERS], frame)

    def _ask(self, kind: str, name: str, detail: str, frame: FrameType | None) -> None:
        """Count a question if user code asks it, and not this runtime or an import."""
        for _ in range(FRAMES_MAX):
            if frame is None:
                return
            file = frame.f_code.co_filename
            if file.startswith((*OURS, "<frozen importlib")):
                return
            if of_a_user(file):
                code = frame.f_code
                self.asked[Question(kind, name, detail, file, frame.f_lineno, code.co_qualname)] += 1  # type: ignore[attr-defined,unused-ignore]
                return
            frame = frame.f_back


AUDITED = {
    "open": FILE, "os.listdir": FILE, "os.scandir": FILE, "glob.glob": FILE, "sqlite3.connect": FILE,
    "socket.connect": NETWORK, "socket.getaddrinfo": NETWORK, "subprocess.Popen": PROCESS, "os.system": PROCESS,
    "os.posix_spawn": PROCESS,
}  # fmt: skip
_CLOCKS = frozenset(
    (
        "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time",
        "process_time_ns", "thread_time", "thread_time_ns", "clock_gettime", "clock_gettime_ns", "localtime", "gmtime",
        "ctime",
    )
)  # fmt: skip
_DATES = frozenset(("now", "utcnow", "today"))


def _kind_of_builtin(function: Any) -> tuple[str, str]:
    """Return what a function of C asks, and its name; ("", "") if the same arguments give the same result."""
    name, module, owner = function.__name__, getattr(function, "__module__", None), getattr(function, "__self__", None)
    if module == "time" and name in _CLOCKS:
        return CLOCK, f"time.{name}"
    if isinstance(owner, type) and issubclass(owner, date) and name in _DATES:
        return CLOCK, f"{owner.__name__}.{name}"
    if isinstance(owner, Random) or type(owner).__module__.startswith("numpy.random"):
        return RANDOM, f"{type(owner).__module__}.{name}"
    if module == "posix" and name in ("urandom", "getrandom"):
        return RANDOM, f"os.{name}"
    if module == "builtins" and name in ("id", "hash"):
        return ORDER, name
    return "", ""


def lines_of_names(code: CodeType) -> dict[str, list[int]]:
    """Return the lines of a function that use each attribute and global, by name."""
    import dis

    lines: dict[str, list[int]] = {}
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        if instruction.starts_line:
            line = getattr(instruction, "line_number", None) or int(instruction.starts_line)
        if instruction.opname.startswith(("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD", "LOAD_DEREF", "LOAD_NAME")):
            lines.setdefault(str(instruction.argval), []).append(line)
        elif instruction.opname.startswith("LOAD_FAST") and isinstance(instruction.argval, str):
            lines.setdefault(instruction.argval, []).append(line)
    return lines


def _variables(frame: FrameType) -> dict[str, Any]:
    """Return the local variables of a function, the attributes of its object, and the globals that it uses."""
    variables = dict(list(frame.f_locals.items())[:VARIABLES_MAX])
    code = frame.f_code
    owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    attributes = getattr(owner, "__dict__", None)
    if code.co_argcount and code.co_varnames[0] == "self" and isinstance(attributes, dict):
        del variables["self"]
        variables |= {f"self.{name}": value for name, value in list(attributes.items())[:VARIABLES_MAX]}
        for name in code.co_names:
            if name not in attributes and name in _data_of(type(owner)):
                variables[f"class {type(owner).__name__}.{name}"] = getattr(owner, name)
    for name in code.co_names:
        value = frame.f_globals.get(name)
        if name in frame.f_globals and not callable(value) and not isinstance(value, (type, ModuleType)):
            variables[f"global {name}"] = value
    return variables


def _data_of(kind: type) -> dict[str, Any]:
    """Return the attributes of the user's classes that are neither functions nor declared state."""
    from operators.state.declared import State

    return {
        name: value
        for each in kind.__mro__
        if of_a_user(getattr(sys.modules.get(each.__module__), "__file__", None) or "<")
        for name, value in vars(each).items()
        if not name.startswith("__") and not callable(value) and not isinstance(value, (State, property, staticmethod))
    }


def said(value: Any) -> str:
    """Return a value as text that is the same for equal values in all processes."""
    try:
        text = _text(value)
    except Exception as problem:
        text = f"<its repr raises {type(problem).__name__}>"
    if len(text) <= SHOWN_CHARACTERS:
        return text
    digest = blake2b(text[:CHARACTERS_MAX].encode(errors="replace"), digest_size=4).hexdigest()
    return f"{text[:SHOWN_CHARACTERS]}… ({len(text):,} characters, {digest})"


def _text(value: Any) -> str:
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(without_addresses(repr(each)) for each in value))}}}"
    return without_addresses(repr(value))
