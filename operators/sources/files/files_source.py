"""The source of files, `FilesSource`: lines, JSON lines, CSV or Parquet, read in place, each row exactly once.

Nothing is copied: the job only lists the files or objects (`file-listings/<source>/`). After a failure, rows are read
again from them, and they must not have changed.
"""

from __future__ import annotations

import codecs
import os
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from causal.errors import CorruptData, DeterminantsLost, OperatorFailed, PipelineError, Unavailable
from causal.storage.directory import Directory
from causal.storage.objects import Objects
from operators.graph import caller
from operators.source import PartitionReader, Source, SourceContext
from operators.sources.files.cutting_rows import ENCODING_OPTION, FOREIGN_BYTES, CsvCutter, LineCutter, foreign, json_of
from operators.sources.files.file_blocks import Blocks, LineBlocks, Mark, ParquetBlocks, plain_name
from operators.sources.files.file_places import PlaceFile, Places
from operators.sources.files.file_reader import FOLDER, POLL_S, FileReader, directory_of
from operators.sources.files.listed import Listed
from operators.sources.files.listing import PREFIX, FileJournal, Finder
from operators.sources.files.local_files import LocalFiles
from operators.sources.files.matching import denied, fixed, matches, regular
from operators.stage.unreadable import SET_ASIDE

if TYPE_CHECKING:
    from operators.sources.files.object_input import ObjectInput

FORMATS = ("text", "json", "csv", "parquet")
_BY_SUFFIX = {".jsonl": "json", ".ndjson": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
PARTITIONS_MAX = 1024
LIST_S = 1.0
"""The pause between two looks for new objects, each of which a store may charge for."""


class FilesSource(Source[Any]):
    """A source of the rows of files or objects, each exactly once, ordered by name and then by row.

    Records of text are str, records of JSON lines are the values of the lines, records of CSV are dicts that map column
    names to str, and records of Parquet are dicts. Data compressed with gzip is decompressed, whatever the file's name.
    A file must not change once it exists: if a file changes or is removed before the job has finished with it, the job
    ends with an error.

    Args:
        patterns: paths, or globs as in `glob.glob` (`**` for any depth); or URLs of objects in a store, such as
            `s3://bucket/in/*.csv` (also `gs://`, `az://`), with the same wildcards.
        format: "text", "json", "csv" or "parquet"; by default, the format that the suffix of the first pattern
            indicates, or else "text".
        follow: whether to continue with new files in the order in which they appear; the source then never ends.
        partitions: the number of partitions to which the files are assigned in turn; it cannot be changed later for the
            same job directory.
        located: whether to return each record as `{"file": …, "line": …, "value": …}`.
        columns: the column names of CSV files that do not begin with them.
        delimiter: the separator between CSV values.
        encoding: the encoding of text, JSON and CSV: "utf-8", or an encoding with one byte per character.
        row_bytes_max: the maximum length of a line in bytes; a longer line is not read into memory, and becomes a bad
            row.
        quiet_s: with `follow`, how long a file must remain unmodified before it is read; objects appear complete.
        options: for URLs, settings of the store's client that take precedence over the environment, by their names
            there, such as `AWS_ENDPOINT`.
    """

    may_be_unreadable = True
    bad_input_remedy = (
        f"{SET_ASIDE}; a resumed job refuses a changed file, so to use a corrected file, empty the sink and "
        "start again without --resume"
    )
    positions_travel = False
    """A position counts rows of the files that this job has listed."""

    def __init__(
        self,
        *patterns: str | os.PathLike[str],
        format: str | None = None,
        follow: bool = False,
        partitions: int = 1,
        located: bool = False,
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        encoding: str = "utf-8",
        row_bytes_max: int = 1 << 20,
        quiet_s: float = 1.0,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._where = f"{caller()}: FilesSource"
        for each in patterns:
            if not isinstance(each, (str, os.PathLike)):
                raise PipelineError(
                    f"{self._where} was given a {type(each).__name__}; pass each path as a separate argument, "
                    "as in FilesSource('a.csv', 'b.csv') or FilesSource(*paths)"
                )
        if not patterns or not all(map(os.fspath, patterns)):
            raise PipelineError(
                f"{self._where} was given no file; pass paths or patterns, as in FilesSource('in/*.csv')"
            )
        self._written = tuple(os.fspath(each) for each in patterns)
        self._objects = self._objects_at(options)
        self.everywhere = self._objects is not None  # files, and the journal of them, are on one host
        self.patterns = tuple(os.path.abspath(os.path.expanduser(each)) for each in self._written)
        if self._objects is not None:
            self.patterns = self._objects.patterns
        self._format_is_inferred = format is None
        self.format = _format_of(self.patterns[0]) if format is None else format
        self.follow = follow
        self.partitions = partitions
        self.located = located
        self.columns = columns if columns is None or isinstance(columns, str) else tuple(columns)
        self.delimiter = delimiter
        self.encoding = "utf-8" if encoding == "utf-8-sig" else encoding  # a byte order mark is skipped in any case
        self.row_bytes_max = row_bytes_max
        self.quiet_s = quiet_s
        self._check_shape()

    def _objects_at(self, options: Mapping[str, str] | None) -> ObjectInput | None:
        """Return the objects that the patterns denote; None if they are paths."""
        if any("://" in each for each in self._written):
            from operators.sources.files.object_input import ObjectInput

            return ObjectInput(self._where, self._written, options or {})
        if options:
            raise PipelineError(f"{self._where} has options for a store, but its files are on this host; omit them")
        return None

    def _check_shape(self) -> None:
        where = self._where
        if self.format not in FORMATS:
            raise PipelineError(f"{where} has format {self.format!r}; use one of {', '.join(FORMATS)}")
        if type(self.partitions) is not int or not 1 <= self.partitions <= PARTITIONS_MAX:
            raise PipelineError(f"{where} has partitions {self.partitions!r}; use 1 to {PARTITIONS_MAX}")
        if type(self.row_bytes_max) is not int or not 16 <= self.row_bytes_max <= 1 << 30:
            raise PipelineError(f"{where} has row_bytes_max {self.row_bytes_max!r}; use 16 to {1 << 30:,}")
        if isinstance(self.quiet_s, bool) or not isinstance(self.quiet_s, (int, float)) or not 0 <= self.quiet_s < 1e6:
            raise PipelineError(f"{where} has quiet_s {self.quiet_s!r}; use seconds")
        if not _is_plain(self.encoding) or (self.format == "json" and codecs.lookup(self.encoding).name != "utf-8"):
            more = (
                "JSON is always utf-8"
                if self.format == "json"
                else "use utf-8, or an encoding with one byte per character"
            )
            raise PipelineError(f"{where} has encoding {self.encoding!r}; {more}")
        if not isinstance(self.delimiter, str) or len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise PipelineError(f"{where} has delimiter {self.delimiter!r}; use one character")
        if self.columns is not None and (
            self.format != "csv" or not _are_names(self.columns) or len(set(self.columns)) < len(self.columns)
        ):
            raise PipelineError(f"{where} has columns {self.columns!r}; use the distinct column names of a CSV file")
        if self.format == "parquet" and find_spec("pyarrow") is None:
            raise PipelineError(f"{where}: Parquet needs pyarrow; run `pip install pyarrow`")

    def check(self) -> None:
        """Raise `PipelineError` if a pattern matches no file, or a matching file cannot be read in the given format."""
        try:
            if self._objects is None:
                self._check_files()
            else:
                self._check_objects(self._objects)
        except Unavailable as problem:
            raise PipelineError(f"{self._where}: {problem}; check the URL, the endpoint and the credentials") from None
        except (CorruptData, DeterminantsLost, OperatorFailed, OSError) as problem:
            raise PipelineError(f"{self._where}: {problem}") from None

    def _check_objects(self, objects: ObjectInput) -> None:
        for number, each in enumerate(objects.matching(may_be_none=self.follow)):
            self._check_name(each.path)
            if not number:  # that objects may be listed does not mean that they may be read
                with each.open() as content:
                    self._check_beginning(each.path, content.read(FOREIGN_BYTES))

    def _check_files(self) -> None:
        for pattern in self.patterns:
            if os.path.isdir(pattern):
                raise PipelineError(f"{self._where}: {pattern} is a directory; use '{pattern}/*'")
            if os.path.lexists(pattern) and regular(pattern) is None:
                raise PipelineError(f"{self._where}: {pattern} is not a regular file; use StdinSource for a pipe")
        if self.follow:
            for pattern in self.patterns:
                if not os.path.isdir(fixed(pattern)):
                    raise PipelineError(f"{self._where}: the directory {fixed(pattern)} does not exist")
            matches(self.patterns)  # raises an error if a path must not be listed
            return
        for pattern in self.patterns:
            files = [match.path for match in matches([pattern])]
            if not files:
                raise PipelineError(f"{self._where}: no file matches {pattern}")
            for path in files:
                if not os.access(path, os.R_OK):
                    raise PipelineError(f"{self._where}: {denied(path, PermissionError(0, 'permission denied'))}")
                self._check_beginning(path, _beginning(path))
                self._check_name(path)

    def _check_beginning(self, path: str, begin: bytes) -> None:
        if self.format != "parquet" and (what := foreign(begin)):
            raise PipelineError(f"{self._where}: {path}: {what}")

    def _check_name(self, path: str) -> None:
        named = _format_of(path)
        if self._format_is_inferred and named not in ("text", self.format):
            raise PipelineError(
                f"{self._where}: {path} has a name like {named}, but would be read as {self.format}, "
                f"like the first pattern; pass format={named!r} or {self.format!r}, and use a separate "
                "source for each format"
            )

    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        """Return a reader of one partition; the reader that runs first lists the files."""
        if self._objects is not None:
            return self._objects.ahead(partition, context, partial(self._reader, partition, context, LIST_S))
        places = PlaceFile(directory_of(context.job_directory, context.name), partition)
        return self._reader(partition, context, POLL_S, Directory(context.job_directory), self._finder(), places)

    def _reader(
        self, partition: int, context: SourceContext, poll_s: float, storage: Objects, finder: Finder, places: Places
    ) -> FileReader:
        journal = self._journal(context.name, storage, finder)
        return FileReader(journal, partition, self.partitions, context.name, places, self.blocks, self.located, poll_s)

    def check_resumed(self, name: str, job_directory: Path, rolled_back: bool) -> None:
        """Raise `PipelineError` if the list of files is complete but `patterns` or `follow` contradicts it.

        If the list is in a store, its reader raises the error.
        """
        self._journal(name, Directory(job_directory), self._finder()).check_resumed(rolled_back)

    def check_readable(self, partition: int, position: int, context: SourceContext) -> None:
        """Raise `PipelineError` if one of the first objects that would be read again has changed or is gone."""
        if self._objects is not None:
            self._objects.check_readable(partition, self.partitions, context, partial(self._journal, context.name))

    def lend(self, name: str, job_directory: Path, elsewhere: Path) -> bool:
        """Copy the listings of files and, before the first ones, the marks at which reading begins."""
        listed, copied = directory_of(job_directory, name), directory_of(elsewhere, name)
        first = not copied.exists()
        copied.mkdir(parents=True, exist_ok=True)
        for path in listed.iterdir() if listed.exists() else ():
            if (first or path.name.startswith(PREFIX)) and path.suffix == "" and not (copied / path.name).exists():
                shutil.copyfile(path, copied / path.name)
        return True

    def _finder(self) -> Finder:
        if self._objects is not None:
            return self._objects.finder()
        return LocalFiles(self.patterns, self._written, self.quiet_s if self.follow else None)

    def _journal(self, name: str, storage: Objects, finder: Finder) -> FileJournal:
        return FileJournal(storage, f"{FOLDER}/{name}", finder, self.partitions, self.follow)

    def blocks(self, file: Listed, mark: Mark) -> Blocks:
        """Return the rows of a file, beginning at the given mark."""
        if self.format == "parquet":
            return ParquetBlocks(file, mark)
        if self.format == "csv":
            cutter = CsvCutter(file.shown, self.encoding, self.row_bytes_max, self.columns, self.delimiter)
            return LineBlocks(file, mark, cutter, partial(_headed, cutter), self.row_bytes_max)
        convert, whole = (json_of, False) if self.format == "json" else (None, True)
        option = "" if self.format == "json" else ENCODING_OPTION
        lines = LineCutter(file.shown, self.encoding, self.row_bytes_max, convert, whole, option)
        return LineBlocks(file, mark, lines, bool, self.row_bytes_max)


def _headed(cutter: CsvCutter) -> bool:
    """Return whether the column names are still unknown."""
    return cutter.columns is None


def _format_of(pattern: str) -> str:
    return _BY_SUFFIX.get(os.path.splitext(plain_name(pattern))[1].lower(), "text")


def _beginning(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(FOREIGN_BYTES)


def _are_names(columns: Sequence[object]) -> bool:
    """Return whether `columns` contains at least one name and only names; a single str is not accepted."""
    return not isinstance(columns, str) and bool(columns) and all(isinstance(each, str) for each in columns)


def _is_plain(encoding: object) -> bool:
    """Return whether bytes may be cut anywhere (except within a UTF-8 character) and only line feeds end lines."""
    probe = bytes(range(256)) + b"\\u000a"  # some encodings treat the second part as an escape
    try:
        alone = [bytes([byte]).decode(str(encoding), "surrogateescape") for byte in probe]
        together = probe.decode(str(encoding), "surrogateescape")
    except (LookupError, ValueError):
        return False
    ends = [byte for byte, text in enumerate(alone[:256]) if "\n" in text]
    return all(len(text) == 1 for text in alone) and together == "".join(alone) and ends == [ord("\n")]
