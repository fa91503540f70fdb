"""The ingest log: objects that are created if absent and never changed (D17), in a directory or in a shared store.

    log.json                                    format and number of channels
    tokens/<token>                              one per start of a driver; the highest may publish
    manifests/<batch>                           a published batch; the last may say that the query has ended
    segments/<batch>-<partition>-<token>-<attempt>-<part>.arrow
    spark/…                                     Spark's checkpoint (`spark.checkpoint`), in a store only
    low-water/<channel>-<batch>-<done>          no batch below `batch` is needed by that channel, and it is done with
                                                those below `done`; of all marks of a channel the highest numbers count
    backlog/<batch>-<0|1>                       of the newest batch: 1 since it waits for room, 0 since it was admitted

What makes it exact when drivers, tasks and readers die, sleep, or hear of a request too late:

* *The first manifest counts, of any driver.*  Spark's checkpoint is part of it, and a driver begins with that of
  the last manifest.  So a driver that was replaced may publish the batch that follows, and the one that has replaced
  it learns of that when it creates the same manifest: it begins again after it.  A batch that a driver finds
  published was published before it began, by its own token, or it is fenced.  On one machine the checkpoint is on its
  disk instead, and Spark repeats a batch from the offsets that it has on record there.
* *Only what is decided is removed.*  A segment of a batch without a manifest may still be published by a process that
  sleeps, so it stays until there is a manifest that does not name it, or until the batch is released.  Where a place
  can exclude other processes, no earlier driver publishes after a later one has begun, which therefore removes all
  segments that no manifest names.
* *What comes back is below the marks.*  A name that is gone can be created again by a process that slept, but only
  batches below the lowest mark are ever removed, and no reader begins there.
* *Marks only grow*, and are right from any process: a checkpoint that is complete covers what they release.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, replace

from causal.errors import CorruptData, DeterminantsLost, Fenced, PipelineError, Unavailable
from causal.process.clock import monotonic_ns, of_host, of_job
from causal.storage.objects import Missing, Objects
from operators.ingest.contract import (
    FORMAT,
    RESTORE,
    SEGMENT_BYTES_MIN,
    Backlog,
    Manifest,
    ReadableLog,
    Segment,
    batch_of,
    check_header,
    digest_of,
    manifest_of,
    seal,
    unread,
    unseal,
)

DIRECTORY_LOOK_S, STORE_LOOK_S = 0.05, 1.0
"""The time between two looks at a log that has no room, on one machine and in a store."""
TRIES_MAX = 100
"""The tries for what others may change meanwhile: the next token, the lowest manifest."""
_NUMBER = re.compile(r"(\d{10})")
_SEGMENT = re.compile(r"\d{10}-\d{5}-")
_MARK = re.compile(r"(\d{5})-(\d{10})-(\d{10})")
_BACKLOG = re.compile(r"(\d{10})-([01])")


class IngestLog(ReadableLog):
    """The log of one source; any number of processes may have it open.

    Any method may raise `Unavailable`, and can then be called again.

    Args:
        objects: the place of the job.
        folder: of the log, in that place.
        channels: the number of channels that the batches are spread over; fixed for the life of the log.
        resumed: the batch after which the driver has begun, which Spark may repeat; -1 for none.
        look_s: the time between two looks at a log that has no room.
    """

    segments_ahead = 0
    caught_up = True
    unavailable_s = None

    def __init__(
        self, objects: Objects, folder: str, channels: int, resumed: int = -1, look_s: float = DIRECTORY_LOOK_S
    ) -> None:
        self.name = folder.rpartition("/")[2]
        self.channels = channels
        self.look_s = look_s
        self._objects = objects
        self._folder = folder
        self._resumed = resumed

    @property
    def where(self) -> str:
        """The folder, as errors name it."""
        return self._objects.where(self._folder)

    def label(self, segment: Segment) -> str:
        """Return the object of a segment, as errors name it."""
        return f"{self.where}/segments/{segment.file}"

    def close(self) -> None:
        """Do nothing: no object is open."""

    # -- who may publish ---------------------------------------------------------------------------------------

    def create(self) -> None:
        """Begin the log unless it has begun.

        Raises:
            PipelineError: it was begun for another number of channels.
            CorruptData: its header does not match its digest.
        """
        name = f"{self._folder}/log.json"
        try:
            header = self._objects.read(name)
        except Missing:
            self._check_no_batches("log.json")
            if self._objects.create(name, seal({"format": FORMAT, "channels": self.channels})):
                return
            header = self._objects.read(name)
        check_header(unseal(header, f"{self.where}/log.json"), self.channels, self.where)

    def _check_no_batches(self, name: str) -> None:
        if self.batches():
            raise CorruptData(f"{self.where}/{name} is missing although there are batches; {RESTORE}")

    def take_over(self) -> int:
        """Create the next token, which fences every earlier driver, and return it.

        Raises:
            CorruptData: a manifest or the earlier tokens are missing.
        """
        for _ in range(TRIES_MAX):
            with self._objects.exclusive(self._folder) as excluded:
                token = self._token() + 1
                if self._objects.create(f"{self._folder}/tokens/{token:010d}", b""):
                    self._check_gapless()
                    self._objects.remove([f"{self._folder}/backlog/{name}" for name in self._listed("backlog")])
                    if excluded:
                        self._sweep()
                    return token
        raise Unavailable(f"{self.where}: other drivers take over all the time")

    def _check_gapless(self) -> None:
        floor = self._floor()
        batches = [batch for batch in self.batches() if batch >= floor]
        missing = sorted(set(range(batches[0], batches[-1])).difference(batches)) if batches else []
        if missing:
            raise CorruptData(self._lost_manifest(missing[0]))

    def _sweep(self) -> None:
        """Remove what earlier drivers have left unpublished."""
        manifests = [self.manifest(batch) for batch in self.batches()]
        named = {segment.file for manifest in manifests if manifest for segment in manifest.segments}
        self._remove_segments([name for name in self._listed("segments") if name not in named])
        for folder in ("tokens", "manifests", "segments", "low-water", "backlog"):
            self._objects.remove_unfinished(f"{self._folder}/{folder}")

    def check_token(self, token: int) -> None:
        """Raise `Fenced` unless `token` is the youngest; only a hint: the creation of the manifest decides."""
        current = self._token()
        if token != current:
            raise Fenced(f"{self.where}: driver {token} was replaced by driver {current}; it must not publish")

    def _token(self) -> int:
        tokens = self._numbers("tokens")
        if not tokens:
            self._check_no_batches("tokens")
        return max(tokens, default=0)

    # -- writing -----------------------------------------------------------------------------------------------

    def write_segment(self, name: str, data: bytes | memoryview) -> str:
        """Create a segment and return its digest; it counts for nothing until published.

        Raises:
            CorruptData: it exists with other content.
            Fenced: it was created by an attempt without an answer, and removed: another driver has published the batch.
        """
        stored, digest = f"{self._folder}/segments/{name}", digest_of(data)
        try:
            if not self._objects.create(stored, data) and digest_of(self._objects.read(stored)) != digest:
                raise CorruptData(f"{self.where}/segments/{name} exists with other content; another job writes there")
        except Missing:
            raise Fenced(f"{self.where}: batch {batch_of(name)} was published without {name}") from None
        return digest

    def publish(
        self, query: str, batch: int, token: int, segments: Sequence[Segment], offsets: str = "", checkpoint: str = ""
    ) -> bool:
        """Make a batch visible: by one creation, so atomically, durably and once.

        Spark publishes a batch again after a crash: the first publication stands, the new segments are removed.

        Args:
            offsets: the digest of Spark's own record of what the batch consists of.
            checkpoint: the object with Spark's checkpoint as of this batch, in a store.

        Returns:
            True if this call published it, False if it existed already, as the same batch.

        Raises:
            Fenced: another driver has published that batch or a later one, or has taken over.
            PipelineError: another query, other input than before for a batch that is repeated, or a batch out of turn.
            CorruptData: a manifest does not match its digest.
        """
        earlier = self.manifest(batch)
        if earlier is None:
            ordered = tuple(sorted(segments, key=lambda segment: (segment.partition, segment.part)))
            with self._objects.exclusive(self._folder):
                self.check_token(token)
                before = self._before(batch, query)
                manifest = Manifest(query, batch, token, offsets, monotonic_ns(), before, ordered, checkpoint)
                if self._objects.create(self._manifest_name(batch), manifest.packed()):
                    return True
            earlier = self.manifest(batch)
        self._check_same(earlier, batch, token, query, offsets)
        self.discard(segments)
        return False

    def _check_same(self, earlier: Manifest | None, batch: int, token: int, query: str, offsets: str) -> None:
        """Raise unless the manifest that is there is of the batch that this driver would publish."""
        if earlier is not None and not earlier.ended:
            if earlier.token == token or batch <= self._resumed:
                if earlier.query == query and earlier.offsets == offsets:
                    return
                raise PipelineError(
                    f"{self.where}: batch {batch} is published, and Spark now takes other input for it: "
                    f"its checkpoint was rolled back; {RESTORE}"
                )
        raise Fenced(f"{self.where}: another driver has published batch {batch}; driver {token} begins again after it")

    def _before(self, batch: int, query: str) -> tuple[int, ...]:
        if batch == 0:
            return (0,) * self.channels
        previous = self.manifest(batch - 1)
        if previous is None:
            last = max(self.batches(), default=-1)
            if last >= batch:
                raise Fenced(f"{self.where}: batch {batch} was published and read long ago; this driver was replaced")
            raise PipelineError(
                f"{self.where}: Spark commits batch {batch}, the last is {last if last >= 0 else 'none'}: "
                "its checkpoint and this log do not belong together; restore both, or use a new --state-dir"
            )
        if previous.ended:
            raise Fenced(f"{self.where}: another driver has ended the query with batch {batch - 2}")
        self._check_query(previous, query)
        return previous.after()

    def discard(self, segments: Sequence[Segment]) -> None:
        """Remove segments of batches that are published without them; others may still be published, and stay."""
        garbage: list[str] = []
        for batch in sorted({batch_of(segment.file) for segment in segments}):
            manifest = self.manifest(batch)
            if manifest is not None:
                named = {segment.file for segment in manifest.segments}
                garbage += [s.file for s in segments if batch_of(s.file) == batch and s.file not in named]
        self._remove_segments(garbage)

    def end(self, token: int) -> None:
        """Record that the query has finished: create the manifest that says that no batch follows.

        Raises:
            Fenced: another driver has taken over, or has published that batch.
        """
        last = self.batches()
        latest = self.manifest(last[-1]) if last else None
        if latest is not None and latest.ended:
            return
        with self._objects.exclusive(self._folder):
            self._end(token, latest)

    def _end(self, token: int, latest: Manifest | None) -> None:
        self.check_token(token)
        if latest is not None and latest.token != token and latest.batch != self._resumed:
            raise Fenced(f"{self.where}: another driver has published batch {latest.batch}, which this one never saw")
        batch = latest.batch + 1 if latest is not None else 0
        query, before = (latest.query, latest.after()) if latest is not None else ("", (0,) * self.channels)
        manifest = Manifest(query, batch, token, "", monotonic_ns(), before, (), ended=True)
        if not self._objects.create(self._manifest_name(batch), manifest.packed()):
            there = self.manifest(batch)
            if there is None or not there.ended:
                raise Fenced(f"{self.where}: another driver has published batch {batch}, which this one never saw")

    # -- room --------------------------------------------------------------------------------------------------

    def unread_bytes(self, before: int) -> int:
        """Return the bytes of segments, in published batches below `before`, that their channel still needs."""
        done = [done for _, done in self._marks()]
        return unread(self._listed("segments").items(), done, before)

    def size_of(self, segments: Sequence[Segment]) -> int:
        """Return the bytes that segments count as which are written and not published."""
        sizes = self._listed("segments")
        return sum(max(sizes.get(segment.file, 0), SEGMENT_BYTES_MIN) for segment in segments)

    def note_backlog(self, backlog: Backlog) -> None:
        """Store the backlog for reports: once when its batch begins to wait, and once when it is let in."""
        names = self._listed("backlog")
        name = f"{backlog.batch:010d}-{0 if not backlog.since_ns else 1}"
        if name not in names:
            body = {**asdict(backlog), "since_ns": of_job(backlog.since_ns)}
            self._objects.create(f"{self._folder}/backlog/{name}", seal(body), durable=False)
        self._objects.remove([f"{self._folder}/backlog/{each}" for each in names if each != name])

    def backlog(self) -> Backlog | None:
        """Return the backlog of the newest batch; None where there is none."""
        names = sorted(
            (int(match[1]), -int(match[2]), name)
            for name in self._listed("backlog")
            if (match := _BACKLOG.fullmatch(name)) is not None
        )
        if not names:
            return None
        try:
            body = unseal(self._objects.read(f"{self._folder}/backlog/{names[-1][2]}"), self.where)
            return Backlog(**{**body, "since_ns": of_host(body["since_ns"]) if body["since_ns"] else 0})
        except (CorruptData, KeyError, TypeError):  # removed a moment ago, or of another version
            return None

    # -- reading -----------------------------------------------------------------------------------------------

    def check_query(self, query: str) -> None:
        """Raise `PipelineError` unless the last batch is of this query, or there is none."""
        batches = self.batches()
        latest = self.manifest(batches[-1]) if batches else None
        if latest is not None:
            self._check_query(latest, query)

    def _check_query(self, manifest: Manifest, query: str) -> None:
        if manifest.query and manifest.query != query:
            raise PipelineError(
                f"{self.where} holds the batches of query {manifest.query}, not of {query or 'a new one'}: "
                f"its Spark checkpoint was removed or replaced; {RESTORE}"
            )

    def check_committed(self, batch: int) -> None:
        """Raise `CorruptData` unless the batch is here that Spark has on record as committed (-1: none yet)."""
        if batch > max(self.batches(), default=-1):
            missing = f"{self.where}/manifests/{batch:010d} is missing although Spark has committed that batch"
            raise CorruptData(f"{missing}; {RESTORE}")

    def check_follows(self, batch: int) -> None:
        """Raise `CorruptData` if the batch is not here although a later one is.

        Raises:
            DeterminantsLost: it is released, so the reader that asks was replaced.
        """
        if max(self.batches(), default=-1) > batch and self.manifest(batch) is None:
            if batch < self._floor():
                raise DeterminantsLost(f"{self.where}: batch {batch} was released; its reader was replaced")
            raise CorruptData(self._lost_manifest(batch))

    def _lost_manifest(self, batch: int) -> str:
        return f"{self.where}/manifests/{batch:010d} is missing although a later batch is published; {RESTORE}"

    def batches(self) -> list[int]:
        """Return the numbers of the manifests that are here, ascending; the last may be that of the end."""
        return self._numbers("manifests")

    def first(self) -> Manifest | None:
        """Return the lowest batch that is not released; None if nothing is published yet."""
        for _ in range(TRIES_MAX):
            batches = self.batches()
            if not batches:
                return None
            floor = self._floor()
            lowest = next((batch for batch in batches if batch >= floor), None)
            manifest = self.manifest(lowest) if lowest is not None else None
            if manifest is not None:
                return manifest
        raise Unavailable(f"{self.where} is being truncated faster than it can be opened")

    def manifest(self, batch: int) -> Manifest | None:
        """Return a published batch, or the end; None if it is not published, or was removed."""
        try:
            data = self._objects.read(self._manifest_name(batch))
        except Missing:
            return None
        manifest = manifest_of(data, f"{self.where}/manifests/{batch:010d}")
        return replace(manifest, published_ns=of_host(manifest.published_ns))

    def supply(self, wanted: Sequence[Segment]) -> bytes:
        """Return the bytes of the first of these segments.

        Raises:
            CorruptData: they are missing, or do not match the digest in the manifest.
        """
        segment = wanted[0]
        try:
            data = self._objects.read(f"{self._folder}/segments/{segment.file}")
        except Missing:
            raise CorruptData(f"{self.label(segment)} is missing although its batch is published; {RESTORE}") from None
        if digest_of(data) != segment.digest:
            raise CorruptData(f"{self.label(segment)} does not match its digest; {RESTORE}")
        return data

    def ended(self) -> int | None:
        """Return the number of batches of a query that has finished, None while it may continue."""
        batches = self.batches()
        latest = self.manifest(batches[-1]) if batches else None
        return latest.batch if latest is not None and latest.ended else None

    # -- truncation --------------------------------------------------------------------------------------------

    def release(self, channel: int, batch: int, done: int | None = None) -> None:
        """Record that `channel` needs no batch below `batch`, and remove what no channel needs."""
        done = batch if done is None else done
        mark = f"{channel:05d}-{batch:010d}-{done:010d}"
        self._objects.create(f"{self._folder}/low-water/{mark}", b"", durable=False)
        lower = [
            name
            for name in self._listed("low-water")
            if (match := _MARK.fullmatch(name)) is not None
            and (int(match[1]), name != mark) == (channel, True)
            and int(match[2]) <= batch
            and int(match[3]) <= done
        ]
        self._objects.remove([f"{self._folder}/low-water/{name}" for name in lower])
        batches = self.batches()
        floor = min(self._floor(), batches[-1] if batches else 0)
        if batches and batches[0] < floor:  # also what attempts have left there that did not count
            segments = [name for name in self._listed("segments") if _SEGMENT.match(name) and batch_of(name) < floor]
            self._remove_segments(segments)
            self._objects.remove([self._manifest_name(number) for number in batches if number < floor])

    def _floor(self) -> int:
        return min(batch for batch, _ in self._marks())

    def _marks(self) -> list[tuple[int, int]]:
        """Return for each channel the batch below which it needs none, and the one below which it is done with all."""
        marks = [(0, 0)] * self.channels
        for name in self._listed("low-water"):
            match = _MARK.fullmatch(name)
            if match is not None and int(match[1]) < self.channels:
                batch, done = marks[int(match[1])]
                marks[int(match[1])] = max(batch, int(match[2])), max(done, int(match[3]))
        return marks

    # ----------------------------------------------------------------------------------------------------------

    def _manifest_name(self, batch: int) -> str:
        return f"{self._folder}/manifests/{batch:010d}"

    def _remove_segments(self, files: Sequence[str]) -> None:
        self._objects.remove([f"{self._folder}/segments/{file}" for file in files])

    def _listed(self, folder: str) -> dict[str, int]:
        """Name → size of the objects of a folder of the log."""
        sizes = self._objects.sizes(f"{self._folder}/{folder}")
        return {name.rpartition("/")[2]: size for name, size in sizes.items()}

    def _numbers(self, folder: str) -> list[int]:
        return sorted(int(match[1]) for match in map(_NUMBER.fullmatch, self._listed(folder)) if match is not None)
