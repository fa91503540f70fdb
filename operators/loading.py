"""Runs a pipeline file; every mistake in it is a `PipelineError` of one line.

Every process of a job loads the file itself: functions never travel.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType, TracebackType

from causal.errors import PipelineError
from operators.pipeline import SETTINGS, Pipeline, Stream

MODULE = "causal_pipeline"
"""What the file's module is called in `sys.modules`; not `__main__`, so a guarded main part does not run."""


def load(path: str | Path, settings: Mapping[str, str] = MappingProxyType({})) -> Pipeline:
    """The pipeline that the file at `path` defines as `pipeline`, checked.

    The file's directory is put on `sys.path`, and stays there for imports that happen later.

    Args:
        settings: seen by the file as `pipeline.settings`.

    Raises:
        PipelineError: the file is missing, cannot run, or defines no pipeline that can.
    """
    file = Path(path).absolute()
    try:
        source = file.read_bytes()
    except FileNotFoundError:
        raise PipelineError(f"{path}: there is no such file; give the path of a file that defines `pipeline`") from None
    except OSError as problem:
        raise PipelineError(f"{path}: cannot be read: {problem.strerror or problem}") from None
    module = ModuleType(MODULE)
    module.__file__ = str(file)
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    sys.modules[MODULE] = module
    token = SETTINGS.set(dict(settings))
    try:
        exec(compile(source, str(file), "exec", dont_inherit=True), module.__dict__)
    except PipelineError:
        raise
    except (SyntaxError, ValueError) as problem:
        raise PipelineError(_syntax(file, problem)) from problem
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        raise PipelineError(_raised(file, problem)) from problem
    finally:
        SETTINGS.reset(token)
    return _pipeline_of(module, file)


def _pipeline_of(module: ModuleType, file: Path) -> Pipeline:
    found = getattr(module, "pipeline", None)
    if isinstance(found, Stream):
        raise PipelineError(f"{file}: `pipeline` is a stream without a sink; end it with .sink(name, sink)")
    if found is None:
        others = [name for name, value in vars(module).items() if isinstance(value, Pipeline)]
        mend = f"rename {others[0]!r} to `pipeline`" if others else 'write pipeline = Pipeline("name")'
        raise PipelineError(f"{file}: defines no `pipeline`; {mend}")
    if not isinstance(found, Pipeline):
        raise PipelineError(f"{file}: `pipeline` is of type {type(found).__name__}; it must be a Pipeline")
    found.check()
    return found


def _syntax(file: Path, problem: SyntaxError | ValueError) -> str:
    if isinstance(problem, SyntaxError) and problem.filename == str(file):
        return f"{file}:{problem.lineno or 1}: {type(problem).__name__}: {problem.msg}"
    return _raised(file, problem)


def _raised(file: Path, problem: BaseException) -> str:
    """file:line of the file's own frame that was innermost, and the exception."""
    line, frame = 0, problem.__traceback__
    while isinstance(frame, TracebackType):
        if frame.tb_frame.f_code.co_filename == str(file):
            line = frame.tb_lineno
        frame = frame.tb_next
    said = " ".join(f"{type(problem).__name__}: {problem}".split())
    return f"{file}:{line}: {said}" if line else f"{file}: {said}"
