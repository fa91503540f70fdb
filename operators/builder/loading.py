"""Loading of pipeline files; every mistake in a pipeline file is reported as a one-line `PipelineError`.

Every process of a job loads the code itself, because functions are never sent between processes. `causal run` loads the
files and archives the sources that it has read (`freeze`). Every other process of that run loads the archive
(`load_of_job`), never the files (D12).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType, ModuleType
from weakref import WeakKeyDictionary

from causal.config import JobConfig
from causal.errors import PipelineError
from operators.builder.pipeline import SETTINGS, Pipeline, Stream
from operators.builder.pipeline_settings import Settings
from operators.builder.spawning import lend_code, refusing_children
from operators.code_archive.archive import Archive, Module
from operators.code_archive.beside import Beside
from operators.code_archive.importing import (
    OURS,
    ArchiveFinder,
    LiveFinder,
    giving_way,
    install,
    modules_kept,
    of_user,
    show_lines,
)
from operators.code_archive.reach import archive_of
from operators.suggestions import suggestion
from operators.tracebacks import location

MODULE = "causal_pipeline"
"""The name of the pipeline module in `sys.modules`; it is not `__main__`, so a guarded main section does not run."""

_BESIDE: WeakKeyDictionary[Pipeline, Beside] = WeakKeyDictionary()
"""The modules next to each pipeline file that `load` has loaded; a process may load several pipelines."""


def load(path: str | Path, settings: Mapping[str, str] = MappingProxyType({})) -> Pipeline:
    """Return the checked pipeline that the file at `path` defines as `pipeline`.

    Modules in the file's directory remain importable after loading.

    Args:
        settings: the values that the file can read as `pipeline.settings`.

    Raises:
        PipelineError: the file is missing, cannot be run, or does not define a pipeline that can run.
    """
    main = _read(path)
    root = Path(main.path).parent
    finder = LiveFinder(root, recording=False)
    install(finder)
    beside = Beside(finder)
    with beside.first():
        pipeline = _run(main, settings, giving_way(root, None, lasting=False))
    _BESIDE[pipeline] = beside
    return pipeline


def modules_first(pipeline: Pipeline) -> AbstractContextManager[None]:
    """During the context, make imports search the directory from which `load` read this pipeline first, if any."""
    beside = _BESIDE.get(pipeline)
    return nullcontext() if beside is None else beside.first()


def freeze(path: str | Path, settings: Mapping[str, str] = MappingProxyType({})) -> tuple[Pipeline, Archive]:
    """Load the pipeline as `load` does, and archive all code that was loaded or that its import statements name.

    Each file is read only once, so the archived bytes are the ones that run.

    Raises:
        PipelineError: as for `load`; also if the code is too large to archive.
    """
    main = _read(path)
    finder = LiveFinder(Path(main.path).parent, recording=True)
    install(finder)
    pipeline = _run(main, settings, giving_way(finder.root, None, lasting=False))
    return pipeline, archive_of(main, finder)


def load_archived(archive: Archive, settings: Mapping[str, str], *, lasting: bool = False) -> Pipeline:
    """Return the pipeline in an archive without reading any of the user's files.

    Args:
        lasting: whether this process runs only this pipeline.

    Raises:
        PipelineError: as for `load`.
    """
    install(ArchiveFinder(archive))
    show_lines(archive.pipeline)
    return _run(archive.pipeline, settings, giving_way(archive.root, archive, lasting=lasting))


def load_of_job(directory: Path, config: JobConfig, *, lasting: bool = False) -> Pipeline:
    """Return the pipeline of the job in `directory` as archived for the run; every process of the job calls this.

    Args:
        lasting: whether this process runs only this pipeline; if so, children that `multiprocessing` spawns also load
            it.

    Raises:
        PipelineError: as for `load`.
        CorruptData: the archive is damaged or missing.
    """
    if not config.code:  # not started by `causal run`, so the program that started the job provides the file
        return load(config.pipeline, config.settings)
    if lasting:
        lend_code(directory, config.code)
    return load_archived(Archive.load(directory, config.code), config.settings, lasting=lasting)


@contextmanager
def version_of_job(directory: Path, config: JobConfig) -> Iterator[Pipeline]:
    """Yield the pipeline of the job in `directory`; its code can be called until the context ends.

    Afterwards, imports resolve to the previously loaded pipeline version again, if there was one.

    Raises:
        PipelineError, CorruptData: as for `load_of_job`.
    """
    version = sys.modules.get(MODULE)
    with modules_kept():
        try:
            yield load_of_job(directory, config)
        finally:
            if version is not None:
                sys.modules[MODULE] = version


def _read(path: str | Path) -> Module:
    file = Path(path).absolute()
    try:
        return Module("", str(file), False, file.read_bytes())
    except FileNotFoundError:
        raise PipelineError(
            f"{path}: the file does not exist; use the path of a file that defines `pipeline`"
        ) from None
    except OSError as problem:
        raise PipelineError(f"{path}: cannot be read: {problem.strerror or problem}") from None


def _run(main: Module, settings: Mapping[str, str], room: AbstractContextManager[None]) -> Pipeline:
    file = Path(main.path)
    module = ModuleType(MODULE)
    module.__file__ = str(file)
    sys.modules[MODULE] = module
    token = SETTINGS.set(Settings(settings))
    try:
        with room, refusing_children():
            exec(compile(main.source, str(file), "exec", dont_inherit=True), module.__dict__)
    except PipelineError:
        raise
    except (SyntaxError, ValueError) as problem:
        raise PipelineError(_syntax(file, problem)) from problem
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        if getattr(problem, "signal", None) is not None:  # raised because a signal is ending the command
            problem.during = f"while it loaded {file}"  # type: ignore[attr-defined]
            raise
        raise PipelineError(_raised(file, problem)) from problem
    finally:
        SETTINGS.reset(token)
    return _pipeline_of(module, file)


def _pipeline_of(module: ModuleType, file: Path) -> Pipeline:
    pipeline = getattr(module, "pipeline", None)
    if isinstance(pipeline, Stream):
        raise PipelineError(f"{file}: `pipeline` is a stream without a sink; end it with .sink(name, sink)")
    if pipeline is None:
        others = [name for name, value in vars(module).items() if isinstance(value, Pipeline)]
        remedy = f"rename {others[0]!r} to `pipeline`" if others else 'write pipeline = Pipeline("name")'
        raise PipelineError(f"{file}: defines no `pipeline`; {remedy}")
    if not isinstance(pipeline, Pipeline):
        raise PipelineError(f"{file}: `pipeline` is of type {type(pipeline).__name__}; it must be a Pipeline")
    pipeline.check()
    return pipeline


def _syntax(file: Path, problem: SyntaxError | ValueError) -> str:
    if isinstance(problem, SyntaxError) and problem.filename == str(file):
        return f"{file}:{problem.lineno or 1}: {type(problem).__name__}: {problem.msg}"
    return _raised(file, problem)


def _raised(file: Path, problem: BaseException) -> str:
    """Return a description of the exception, preceded by the file:line of the innermost frame of user code."""
    where = location(problem).rpartition(" in ")[0] or str(file)
    said = " ".join(f"{type(problem).__name__}: {problem}".split())
    return f"{where}: {said}{suggestion(problem)}{_packaged(file, problem)}{_namesake(file, problem)}"


def _packaged(file: Path, problem: BaseException) -> str:
    """Return the remedy for a file that uses relative imports but was not run as a module in its package."""
    if not isinstance(problem, ImportError) or "no known parent package" not in str(problem):
        return ""
    top = file.parent
    while (top.parent / "__init__.py").exists():
        top = top.parent
    name = ".".join(file.relative_to(top.parent).with_suffix("").parts)
    return f"; run a file next to the directory {top.name} instead, with the line `from {name} import pipeline`"


def _namesake(file: Path, problem: BaseException) -> str:
    """Return the remedy for a file in the pipeline's directory whose name is also the name of an installed module."""
    named = problem.name if isinstance(problem, ImportError) else None
    if isinstance(problem, AttributeError) and isinstance(problem.obj, ModuleType):
        named = problem.obj.__name__
    if not named:
        return ""
    top = named.partition(".")[0]
    beside = next((p for p in (file.parent / f"{top}.py", file.parent / top / "__init__.py") if p.exists()), None)
    if of_user(top) or beside is None:
        return ""
    whose = "causal-streams" if top in OURS else "Python's standard library"
    return (
        f"; {beside.relative_to(file.parent)} has the name of a module of {whose}, which is loaded instead: "
        "rename the file"
    )
