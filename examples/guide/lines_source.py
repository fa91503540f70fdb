"""A source of your own that reads lines; `FilesSource` is one that bears more."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

Path("lines.py").write_text('''
import time
from itertools import islice
from pathlib import Path

from causal.errors import PipelineError
from operators import Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import PartitionReader, Read, Source, SourceContext


class LinesSource(Source[str]):
    """Each file is a partition, each of its lines an element. The files must not change."""

    def __init__(self, *paths: str) -> None:
        self.paths = [Path(path).absolute() for path in paths]
        self.partitions = len(paths)

    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        return LinesReader(self.paths[partition])

    def check(self) -> None:
        for path in self.paths:
            if not path.is_file():
                raise PipelineError(f"LinesSource: {path} is not there")


class LinesReader:
    def __init__(self, path: Path) -> None:
        self._file = open(path)
        self._at = 0  # the position of the line that comes next

    def read(self, position: int, count_max: int) -> Read | None:
        if position < self._at:
            self._file.seek(0)
            self._at = 0
        while self._at < position:
            self._file.readline()
            self._at += 1
        lines = [line.rstrip("\\n") for line in islice(self._file, count_max)]
        self._at += len(lines)
        return Read(lines, time.monotonic_ns(), ended=len(lines) < count_max)

    def ready_in_s(self, position: int) -> float:
        return 0.0

    def completed(self, position: int) -> None:
        """A file keeps its lines, so there is nothing to let go."""

    def close(self) -> None:
        self._file.close()


pipeline = Pipeline("lines")
lines = pipeline.source("lines", LinesSource("a.txt", "b.txt"), parallelism=2)
lines.key_by(len).count("lengths").sink("out", JsonLinesSink("out"))
''')
Path("a.txt").write_text("one\ntwo\n" * 100_000)
Path("b.txt").write_text("three\n" * 100_000)
argv = [sys.executable, "-m", "deploy", "run", "lines.py", "--kill", "lines/0@0.1"]
subprocess.run(argv, check=True, capture_output=True)
rows = [json.loads(line) for path in Path("out").glob("*.jsonl") for line in path.read_text().splitlines()]
for length, count in sorted(Counter(length for length, _ in rows).items()):
    print(f"{count} rows of length {length}; the last one is {max(row for row in rows if row[0] == length)}")
