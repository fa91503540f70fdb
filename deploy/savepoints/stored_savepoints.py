"""Savepoints in a shared store, where the files of a savepoint's directory are objects below a URL.

Each object is created only if it does not exist, and the manifest is created last. A savepoint without a manifest was
never completed and is refused. A savepoint is first copied to a directory, from which a job then begins as usual.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from causal.errors import PipelineError, Unavailable
from causal.storage.files import make_directory
from causal.storage.objects import Missing
from causal.storage.shared import Depot
from deploy.savepoints.savepoint_store import FILE
from standby.storage.manifest_files import DIRECTORY, newest_manifest

FILES_MAX = 1_000_000
_MANIFEST = f"{DIRECTORY}/manifest-"


def is_url(place: str) -> bool:
    """Return whether `place` is the URL of a store rather than a directory."""
    return "://" in place


def check_room(url: str) -> None:
    """Raise `PipelineError` unless the store answers and has no objects at this URL."""
    if _sizes(url):
        raise PipelineError(f"{url} is not empty; use another URL for the savepoint")


def put(where: Path, url: str) -> None:
    """Copy the savepoint in `where` to the store; the copy counts as a savepoint once this function has returned.

    Raises:
        Unavailable: the store does not answer; nothing at the URL counts as a savepoint.
        CorruptData: another object was created at the URL in the meantime.
    """
    depot = _depot(url)
    names = [path.relative_to(where).as_posix() for path in where.rglob("*") if path.is_file()]
    for name in sorted(names, key=lambda name: (name.startswith(_MANIFEST), name)):
        depot.create_own(name, (where / name).read_bytes())


@contextmanager
def as_directory(place: str | None) -> Iterator[str | None]:
    """Yield the directory of the savepoint at `place`: either `place` itself, or a temporary copy if it is a URL.

    Raises:
        PipelineError: the store does not answer, or has no complete savepoint at the URL.
    """
    if place is None or not is_url(place):
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="causal-savepoint-") as directory:
        _fetch(place, Path(directory))
        yield directory


def _fetch(url: str, to: Path) -> None:
    sizes = _sizes(url)
    again = "create another with `causal savepoint --to URL`"
    if not sizes:
        raise PipelineError(f"{url} does not contain a savepoint; {again}")
    if not any(name.startswith(_MANIFEST) for name in sizes):
        raise PipelineError(f"{url} has an incomplete savepoint: its manifest is missing; {again}")
    if len(sizes) > FILES_MAX:
        raise PipelineError(
            f"{url} has {len(sizes)} objects, more than a savepoint can have; use the URL of a savepoint"
        )
    depot = _depot(url)
    try:
        for name in sizes:
            if ".." in PurePosixPath(name).parts:
                raise PipelineError(f"{url} has {name}, which is not a file of a savepoint; use the URL of a savepoint")
            make_directory((to / name).parent, durable=False)
            (to / name).write_bytes(depot.read(name))
        manifest = newest_manifest(to)
    except (Missing, Unavailable) as problem:
        raise PipelineError(f"--from {url}: {problem}") from None
    except OSError as problem:
        raise PipelineError(
            f"--from {url} cannot be copied to {to}: {problem.strerror}; set TMPDIR to a directory that can be "
            "written and has free space"
        ) from None
    named = {} if manifest is None else {path: size for each in manifest[1].values() for path, size, _ in each}
    lacking = [path for path, size in named.items() if sizes.get(path) != size]
    lacking += [name for name in (FILE, "job.json", "topology.json") if name not in sizes]
    if manifest is None or lacking:
        shown = lacking[0] if lacking else "its manifest"
        raise PipelineError(f"{url} has an incomplete savepoint: {shown} is missing or truncated; {again}")


def _sizes(url: str) -> dict[str, int]:
    above, name = _place(url)
    if above.startswith("file:") and not Path(urlsplit(above).path, name).is_dir():
        return {}  # otherwise, the client would create the directory
    try:
        return _depot(url).sizes("")
    except Unavailable as problem:
        raise PipelineError(f"{problem}; check the URL, the endpoint and the credentials") from None


def _depot(url: str) -> Depot:
    """Return a client for the objects below this URL."""
    return Depot(*_place(url))


def _place(url: str) -> tuple[str, str]:
    """Split a savepoint's URL into the URL of the store and the last part, which names the savepoint."""
    parts = urlsplit(url.rstrip("/"))
    above, _, name = parts.path.rpartition("/")
    if parts.scheme not in ("s3", "file") or (parts.scheme == "file") == bool(parts.netloc) or name in ("", ".", ".."):
        raise PipelineError(f"{url} is not a place for a savepoint; use s3://BUCKET/NAME or file:///DIRECTORY/NAME")
    root = "/" if parts.scheme == "file" else ""
    return f"{parts.scheme}://{parts.netloc}{above or root}", name
