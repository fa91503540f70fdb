"""Redaction of a bundle: a hook of the user's replaces records, and settings that look like secrets are replaced."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from causal.errors import CausalError, PipelineError
from operators.replay.bundling import Redact
from operators.tracebacks import described, location

SECRETS = re.compile("password|passwd|secret|token|credential|apikey|api_key|access_key|auth", re.IGNORECASE)
HIDDEN = "redacted"
_PASSWORD = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")
"""A password in a URL."""


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings in which those that look like secrets, and passwords in URLs, are replaced."""
    return {
        name: HIDDEN if value and SECRETS.search(name) else _PASSWORD.sub(rf"\1{HIDDEN}@", value)
        for name, value in settings.items()
    }


def hook_of(option: str) -> Redact:
    """Return the function that `--redact HOOK.py:FUNCTION` names.

    Raises:
        PipelineError: there is no such function.
    """
    file, colon, name = option.rpartition(":")
    path = Path(file).absolute()
    if not colon or not name.isidentifier():
        raise PipelineError(f"--redact {option}: use HOOK.py:FUNCTION")
    module = ModuleType("redaction_hook")
    module.__file__ = str(path)
    try:
        exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), module.__dict__)
    except OSError as problem:
        raise PipelineError(f"--redact {option}: {path} cannot be read: {problem.strerror}") from None
    except Exception as problem:
        raise PipelineError(f"--redact {option}: {location(problem) or path}: {described(problem)}") from None
    function = getattr(module, name, None)
    if not callable(function):
        raise PipelineError(f"--redact {option}: {path} has no function {name}(source, record)")

    def redact(source: str, record: Any) -> Any:
        try:
            replaced = function(source, record)
        except CausalError:
            raise
        except Exception as problem:
            where = location(problem) or str(path)
            raise PipelineError(
                f"--redact {option}: {where}: {described(problem)} for a record of {source!r}"
            ) from None
        if replaced is None and record is not None:
            raise PipelineError(f"--redact {option} returned None for a record of {source!r}; return the record")
        return replaced

    return redact
