"""The ingest log: objects that are created only if absent and never changed (D17), in a directory or a shared store.

    log.json                                    format and number of channels
    tokens/<token>                              one per driver start; only the highest may publish
    manifests/<batch>                           a published batch; the last one may state that the query has ended
    segments/<batch>-<partition>-<token>-<attempt>-<part>.arrow
    spark/…                                     Spark's checkpoint (`spark.checkpoint`), only in a store
    low-water/…, kept/…                         what readers and savepoints still need (`marks`)
    backlog/<batch>-<0|1>                       of the newest batch: 1 while it waits for room, 0 once it is admitted

The log stays exact when drivers, tasks and readers die or pause, or when their requests arrive too late, for these
reasons:

* *The first manifest of a batch is the valid one, whichever driver created it.* The manifest includes Spark's
  checkpoint, and a driver begins with the checkpoint of the last manifest. A replaced driver may therefore publish the
  next batch; its successor notices this when it tries to create the same manifest, and begins again after that batch.
  If a driver finds that a batch is already published, then the batch was published before the driver began or with its
  own token, or the driver is fenced. On one machine, the checkpoint is on the machine's disk instead, and Spark repeats
  a batch from the offsets recorded there.
* *Only segments whose fate is decided are removed.* A paused process may still publish a segment of a batch that has no
  manifest. The segment therefore stays until a manifest exists that does not name it, or until the batch is released.
  If the storage can exclude other processes, no earlier driver publishes after a later one has begun, so the later
  driver removes all segments that no manifest names.
* *Objects that reappear are below the marks.* A process that was paused can create an object under a removed name
  again, but only batches below the lowest mark are ever removed, and no reader begins there.
* *Marks of readers only grow*, and are valid whichever process writes them, because a complete checkpoint covers the
  batches that they release. A rollback lowers them, after which the marks of earlier readers do not count.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace

from causal.errors import CorruptData, DeterminantsLost, Fenced, PipelineError, Unavailable
from causal.process.clock import monotonic_ns, of_host, of_job
from causal.storage.objects import Missing, Objects
from operators.ingest import marks
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
from operators.ingest.marks import LowWater

DIRECTORY_LOOK_S, STORE_LOOK_S = 0.05, 1.0
"""The time between two looks at a log that has no room, on one machine and in a store."""
TRIES_MAX = 100
"""The tries for what others may change meanwhile: the next token, the lowest manifest."""
_NUMBER = re.compile(r"(\d{10})")
_SEGMENT = re.compile(r"\d{10}-\d{5}-")
_BACKLOG = re.compile(r"(\d{10})-([01])")


class IngestLog(ReadableLog):
    """The log of one source, which any number of processes may use at the same time.

    Any method may raise `Unavailable`; the call can then be repeated.

    Args:
        objects: the job's storage.
        folder: the folder of the log in that storage.
        channels: the number of channels among which the batches are divided, which never changes for a log.
        resumed: the batch after which the driver began, which Spark may repeat; -1 for none.
        look_s: the interval between two checks of a log that has no room.
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
        self._returns: int | None = None
        """The number of returns that the log had seen when a reader began to use this object."""
        self._removed = -1
        """The batch below which this object has removed everything."""
        self._published: list[tuple[int, int]] = []
        """(batch, size) of the segments from the oldest savepoint on, as far as they are known; they never change."""

    @property
    def where(self) -> str:
        """The folder of the log, for error messages."""
        return self._objects.where(self._folder)

    def label(self, segment: Segment) -> str:
        """Return the name of a segment's object, for error messages."""
        return f"{self.where}/segments/{segment.file}"

    def close(self) -> None:
        """Do nothing, because there are no open resources."""

    # -- the right to publish ----------------------------------------------------------------------------------

    def create(self) -> None:
        """Create the log unless it already exists.

        Raises:
            PipelineError: the log was created for another number of channels.
            CorruptData: the log's header is missing or does not match its digest.
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

    @property
    def exists(self) -> bool:
        """Whether the log has been created."""
        try:
            self._objects.read(f"{self._folder}/log.json")
        except Missing:
            return False
        return True

    def _check_no_batches(self, name: str) -> None:
        if self.batches():
            raise CorruptData(f"{self.where}/{name} is missing although batches exist; {RESTORE}")

    def take_over(self) -> int:
        """Create the next token, which fences all earlier drivers, and return it.

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
        raise Unavailable(f"{self.where}: other drivers keep taking over the log")

    def _check_gapless(self) -> None:
        floor = self._floor()
        batches = [batch for batch in self.batches() if batch >= floor]
        missing = sorted(set(range(batches[0], batches[-1])).difference(batches)) if batches else []
        if missing:
            raise CorruptData(self._lost_manifest(missing[0]))

    def _sweep(self) -> None:
        """Remove objects that earlier drivers wrote but did not publish."""
        floor = self._floor()  # what savepoints need below it, earlier drivers have swept
        manifests = [self.manifest(batch) for batch in self.batches() if batch >= floor]
        named = {segment.file for manifest in manifests if manifest for segment in manifest.segments}
        self._remove_segments([name for name in self._listed("segments", floor) if name not in named])
        for folder in ("tokens", "manifests", "segments", "low-water", "kept", "backlog"):
            self._objects.remove_unfinished(f"{self._folder}/{folder}")

    def check_token(self, token: int) -> None:
        """Raise `Fenced` unless `token` is the newest token.

        This is only a hint: the creation of the manifest decides.
        """
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
        """Create a segment and return its digest; the segment has no effect until it is published.

        Raises:
            CorruptData: the segment exists with different content.
            Fenced: an earlier attempt created the segment but received no answer, and another driver has since
                published the batch, so that the segment was removed.
        """
        stored, digest = f"{self._folder}/segments/{name}", digest_of(data)
        try:
            if not self._objects.create(stored, data) and digest_of(self._objects.read(stored)) != digest:
                raise CorruptData(
                    f"{self.where}/segments/{name} exists with different content; another job writes to this place"
                )
        except Missing:
            raise Fenced(f"{self.where}: batch {batch_of(name)} was published without {name}") from None
        return digest

    def publish(
        self, query: str, batch: int, token: int, segments: Sequence[Segment], offsets: str = "", checkpoint: str = ""
    ) -> bool:
        """Publish a batch by creating one object, which is atomic and durable, and succeeds only once.

        Spark publishes a batch again after a crash. The first publication remains valid, and the new segments are
        removed.

        Args:
            offsets: the digest of Spark's own record of the batch's contents.
            checkpoint: in a store, the name of the object with Spark's checkpoint as of this batch.
        Returns:
            True if this call published the batch, False if the same batch was already published.
        Raises:
            Fenced: another driver has published that batch or a later one, or has taken over.
            PipelineError: the query differs, a repeated batch has different input, or the batch is out of order.
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
        """Raise an error unless the existing manifest describes the batch that this driver would publish."""
        if earlier is not None and not earlier.ended:
            if earlier.token == token or batch <= self._resumed:
                if earlier.query == query and earlier.offsets == offsets:
                    return
                raise PipelineError(
                    f"{self.where}: batch {batch} is published, but Spark now uses different input for it, "
                    f"because Spark's checkpoint was rolled back; {RESTORE}"
                )
        raise Fenced(f"{self.where}: another driver has published batch {batch}; driver {token} restarts after it")

    def _before(self, batch: int, query: str) -> tuple[int, ...]:
        if batch == 0:
            return (0,) * self.channels
        previous = self.manifest(batch - 1)
        if previous is None:
            last = max(self.batches(), default=-1)
            if last >= batch:
                raise Fenced(f"{self.where}: batch {batch} was already published and read; this driver was replaced")
            raise PipelineError(
                f"{self.where}: Spark commits batch {batch}, but the last batch is "
                f"{last if last >= 0 else 'none'}: Spark's checkpoint and this log do not belong together; "
                "restore both, or use a new --state-dir"
            )
        if previous.ended:
            raise Fenced(f"{self.where}: another driver has ended the query with batch {batch - 2}")
        self._check_query(previous, query)
        return previous.after()

    def discard(self, segments: Sequence[Segment]) -> None:
        """Remove segments whose batches were published without them; all others may still be published, and stay."""
        garbage: list[str] = []
        for batch in sorted({batch_of(segment.file) for segment in segments}):
            manifest = self.manifest(batch)
            if manifest is not None:
                named = {segment.file for segment in manifest.segments}
                garbage += [s.file for s in segments if batch_of(s.file) == batch and s.file not in named]
        self._remove_segments(garbage)

    def end(self, token: int) -> None:
        """Record that the query has finished, by creating a manifest that states that no batch follows.

        Raises:
            Fenced: another driver has taken over, or has published a batch at that position.
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
            raise Fenced(
                f"{self.where}: another driver has published batch {latest.batch}, which this driver has never seen"
            )
        batch = latest.batch + 1 if latest is not None else 0
        query, before = (latest.query, latest.after()) if latest is not None else ("", (0,) * self.channels)
        manifest = Manifest(query, batch, token, "", monotonic_ns(), before, (), ended=True)
        if not self._objects.create(self._manifest_name(batch), manifest.packed()):
            there = self.manifest(batch)
            if there is None or not there.ended:
                raise Fenced(
                    f"{self.where}: another driver has published batch {batch}, which this driver has never seen"
                )

    # -- room --------------------------------------------------------------------------------------------------

    def room_taken(self, batch: int, segments: Sequence[Segment] = ()) -> tuple[int, int]:
        """Return the size of what the channels still need of batches below `batch`, and that of its written segments.

        A segment counts as at least `SEGMENT_BYTES_MIN`.
        """
        done = [done for _, done in self._needed()]
        sizes = self._listed("segments", min(*done, batch))
        coming = sum(max(sizes.get(segment.file, 0), SEGMENT_BYTES_MIN) for segment in segments)
        return unread(sizes.items(), done, batch), coming

    def note_backlog(self, backlog: Backlog) -> None:
        """Store the backlog for reports, when its batch begins to wait and when the batch is admitted."""
        names = self._listed("backlog")
        name = f"{backlog.batch:010d}-{0 if not backlog.since_ns else 1}"
        if name not in names:
            body = {**asdict(backlog), "since_ns": of_job(backlog.since_ns)}
            self._objects.create(f"{self._folder}/backlog/{name}", seal(body), durable=False)
        self._objects.remove([f"{self._folder}/backlog/{each}" for each in names if each != name])

    def backlog(self) -> Backlog | None:
        """Return the backlog of the newest batch, or None if there is none."""
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
        except (CorruptData, KeyError, TypeError):  # the object was just removed, or another version wrote it
            return None

    # -- reading -----------------------------------------------------------------------------------------------

    def check_query(self, query: str) -> None:
        """Raise `PipelineError` if the last batch belongs to another query."""
        batches = self.batches()
        latest = self.manifest(batches[-1]) if batches else None
        if latest is not None:
            self._check_query(latest, query)

    def _check_query(self, manifest: Manifest, query: str) -> None:
        if manifest.query and manifest.query != query:
            raise PipelineError(
                f"{self.where} has the batches of query {manifest.query}, not of {query or 'a new query'}: its "
                f"Spark checkpoint was removed or replaced; {RESTORE}"
            )

    def check_committed(self, batch: int) -> None:
        """Raise `CorruptData` if the batch that Spark recorded as its last commit is missing.

        Args:
            batch: the last committed batch; -1 for none.
        """
        if batch > max(self.batches(), default=-1):
            missing = f"{self.where}/manifests/{batch:010d} is missing although Spark has committed that batch"
            raise CorruptData(f"{missing}; {RESTORE}")

    def check_follows(self, batch: int) -> None:
        """Raise `CorruptData` if the batch is missing although a later batch exists.

        Raises:
            DeterminantsLost: the batch was released, so the calling reader was replaced.
        """
        if max(self._numbers("manifests", batch), default=-1) > batch and self.manifest(batch) is None:
            if batch < self._floor():
                raise DeterminantsLost(
                    f"{self.where}: batch {batch} was already released, because its reader was replaced"
                )
            raise CorruptData(self._lost_manifest(batch))

    def _lost_manifest(self, batch: int) -> str:
        return f"{self.where}/manifests/{batch:010d} is missing although a later batch is published; {RESTORE}"

    def batches(self) -> list[int]:
        """Return the numbers of the existing manifests in ascending order; the last one may be the end manifest."""
        return self._numbers("manifests")

    def first(self) -> Manifest | None:
        """Return the lowest batch that a reader still needs, or None if nothing is published yet.

        Marks that this object writes from now on do not count once the log has returned to a savepoint.
        """
        if self._returns is None:
            self._returns = marks.returns_of(self._low_water())
        return self._first(self._floor)

    def kept_rows(self, channel: int) -> tuple[int, int]:
        """Return the position of a channel's first row that is kept, and that after its last row."""
        first, batches = self._first(lambda: self._floor(removing=True)), self.batches()
        last = self.manifest(batches[-1]) if batches else None
        return (0, 0) if first is None or last is None else (first.before[channel], last.after()[channel])

    def _first(self, floor_now: Callable[[], int]) -> Manifest | None:
        for _ in range(TRIES_MAX):
            batches = self.batches()
            if not batches:
                return None
            floor = floor_now()
            lowest = next((batch for batch in batches if batch >= floor), None)
            manifest = self.manifest(lowest) if lowest is not None else None
            if manifest is not None:
                return manifest
        raise Unavailable(f"{self.where} is being truncated faster than it can be opened")

    def manifest(self, batch: int) -> Manifest | None:
        """Return a published batch or the end manifest, or None if it is not published or was removed."""
        try:
            data = self._objects.read(self._manifest_name(batch))
        except Missing:
            return None
        manifest = manifest_of(data, f"{self.where}/manifests/{batch:010d}")
        return replace(manifest, published_ns=of_host(manifest.published_ns))

    def supply(self, wanted: Sequence[Segment]) -> bytes:
        """Return the bytes of the first of these segments.

        Raises:
            CorruptData: the bytes are missing, or do not match the digest in the manifest.
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
        """Return the number of batches if the query has finished, or None while it may continue."""
        batches = self.batches()
        latest = self.manifest(batches[-1]) if batches else None
        return latest.batch if latest is not None and latest.ended else None

    # -- truncation --------------------------------------------------------------------------------------------

    def release(self, channel: int, batch: int, done: int | None = None) -> None:
        """Record that `channel` does not need batches below `batch`, and remove batches that no channel needs."""
        done = batch if done is None else done
        returns = marks.returns_of(self._low_water()) if self._returns is None else self._returns
        self._lower(LowWater(channel, batch, done, returns), durable=False)
        floor = self._floor(removing=True)
        if floor <= self._removed:
            return
        batches = self.batches()
        floor = min(floor, batches[-1] if batches else 0)
        if batches and batches[0] < floor:  # this also removes segments of failed attempts
            segments = [name for name in self._listed("segments") if _SEGMENT.match(name) and batch_of(name) < floor]
            self._remove_segments(segments)
            self._objects.remove([self._manifest_name(number) for number in batches if number < floor])
        self._removed = floor

    def _lower(self, mark: LowWater, durable: bool) -> None:
        """Write a reader's mark, and remove those that it supersedes."""
        self._objects.create(f"{self._folder}/low-water/{mark.name}", b"", durable)
        lower = [each.name for each in self._low_water() if mark.supersedes(each)]
        self._objects.remove([f"{self._folder}/low-water/{name}" for name in lower])

    def _floor(self, removing: bool = False) -> int:
        """Return the lowest batch that a reader still needs.

        Args:
            removing: whether to include the batches that only savepoints need.
        """
        kept = list(marks.kept_of(self._listed("kept")).values()) if removing else []
        return min([batch for batch, _ in self._needed()] + kept)

    def _needed(self) -> list[tuple[int, int]]:
        return marks.needed(self._low_water(), self.channels)

    def _low_water(self) -> list[LowWater]:
        return marks.low_water_of(self._listed("low-water"))

    # -- savepoints --------------------------------------------------------------------------------------------

    def keep(self, savepoint: str, positions: Sequence[int]) -> None:
        """Keep the rows from each channel's position on, until `forget`.

        Args:
            positions: the position of each channel, at or after those that checkpoints have covered.
        """
        batch = min(self._batch_at(channel, position) for channel, position in enumerate(positions))
        self._objects.create(f"{self._folder}/kept/{marks.kept_name(batch, savepoint)}", b"")

    def kept(self) -> dict[str, int]:
        """Return the lowest batch that each savepoint needs, by the savepoint's name."""
        kept = marks.kept_of(self._listed("kept"))
        kept.pop(marks.RECORDING, None)
        return kept

    def record(self, positions: Sequence[int]) -> int:
        """Keep the rows from each channel's position on for the job's recording, and those before them no longer.

        Returns: the size of the segments that are kept, in bytes.
        """
        batch = min(self._batch_at(channel, position) for channel, position in enumerate(positions))
        mark = marks.kept_name(batch, marks.RECORDING)
        if mark not in (known := self._listed("kept")):
            self._objects.create(f"{self._folder}/kept/{mark}", b"", durable=False)
        old = [name for name in known if marks.RECORDING in marks.kept_of([name]) and name != mark]
        self._objects.remove([f"{self._folder}/kept/{name}" for name in old])
        return sum(self._listed("segments", batch).values())

    def forget(self, savepoints: Iterable[str]) -> None:
        """Keep no batches for these savepoints any longer; the next release removes them."""
        gone = set(savepoints)
        names = [name for name in self._listed("kept") if gone.intersection(marks.kept_of([name]))]
        self._objects.remove([f"{self._folder}/kept/{name}" for name in names])

    def exceeding(self, last: int, bytes_max: int) -> list[str]:
        """Return the savepoints since which more than `bytes_max` was published, the oldest first.

        A segment counts as at least `SEGMENT_BYTES_MIN`.

        Args:
            last: the batch that was published last.
        """
        kept = self.kept()
        if not kept:
            self._published.clear()
            return []
        begin = self._published[-1][0] + 1 if self._published else min(kept.values())
        for name, size in sorted(self._listed("segments", begin).items()):
            if _SEGMENT.match(name) and batch_of(name) <= last:
                self._published.append((batch_of(name), max(size, SEGMENT_BYTES_MIN)))
        return marks.exceeding(kept, self._published, bytes_max)

    def return_to(self, positions: Sequence[int]) -> None:
        """Lower the readers' marks to the batches from which these positions are read; repeating this is harmless.

        Args:
            positions: the position of each channel; no reader uses the log.
        """
        returns = 1 + marks.returns_of(self._low_water())
        for channel, position in enumerate(positions):
            batch = self._batch_at(channel, position)
            self._lower(LowWater(channel, batch, batch, returns), durable=True)

    def _batch_at(self, channel: int, position: int) -> int:
        """Return the last batch whose first row of a channel is not after a position; the lowest one if there is none.

        If nothing is published, the result is 0.
        """
        floor = self._floor(removing=True)
        batches = [batch for batch in self.batches() if batch >= floor]

        def before(batch: int) -> int:
            manifest = self.manifest(batch)
            return -1 if manifest is None else manifest.before[channel]  # it has just been released

        return batches[max(0, bisect_right(batches, position, key=before) - 1)] if batches else 0

    # ----------------------------------------------------------------------------------------------------------

    def _manifest_name(self, batch: int) -> str:
        return f"{self._folder}/manifests/{batch:010d}"

    def _remove_segments(self, files: Sequence[str]) -> None:
        self._objects.remove([f"{self._folder}/segments/{file}" for file in files])

    def _listed(self, folder: str, batch: int = 0) -> dict[str, int]:
        """Return the sizes of the objects in a folder of the log, keyed by name.

        Args:
            batch: the batch below which objects may be left out, where names begin with the number of a batch.
        """
        after = f"{batch - 1:010d}~" if batch > 0 else ""
        sizes = self._objects.sizes(f"{self._folder}/{folder}", after)
        return {name.rpartition("/")[2]: size for name, size in sizes.items()}

    def _numbers(self, folder: str, batch: int = 0) -> list[int]:
        listed = self._listed(folder, batch)
        return sorted(int(match[1]) for match in map(_NUMBER.fullmatch, listed) if match is not None)
