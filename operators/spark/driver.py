"""The driver process of a `SparkSource`, which runs its query and publishes micro-batches to the ingest log.

    python -m operators.spark.driver JOB_DIRECTORY SOURCE

Exit status 0: the query has ended, and the log records this. 2: a restart would fail again; the last line of standard
error states why. Any other status: restart the process; it resumes from Spark's checkpoint and the log.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from causal.config import JobConfig
from causal.errors import CausalError, CorruptData, Fenced, PipelineError, Unavailable
from causal.network.host_file import HostFile
from causal.process import processlog
from causal.process.forks import lock
from causal.storage.modes import PRIVATE
from causal.storage.objects import Missing
from operators.builder.loading import MODULE as PIPELINE_MODULE
from operators.builder.loading import load_of_job
from operators.ingest.bound import BOUNDS, LogBounds
from operators.ingest.ingest_log import IngestLog
from operators.ingest.place import IngestPlace
from operators.spark import daemon as spark_daemon
from operators.spark.checkpoint import DIRECTORY as CHECKPOINT
from operators.spark.checkpoint import StoredCheckpoint, checkpoint_of
from operators.spark.java import find_java, java_home
from operators.spark.jvm import SparkJvm
from operators.spark.query_failures import Failures, UserCodeFailed, user_error
from operators.spark.retries import insisted
from operators.spark.spark_source import SparkSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from operators.spark.writer import BatchPublisher

PREDECESSOR_WAIT_S = 30.0
LOOPBACK = "127.0.0.1"
_CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""A manager that saves 70 ms of each micro-batch; it trusts that no other process writes, as the lock ensures."""
_SOCKET_NAME = "/.00000000-0000-0000-0000-000000000000.sock"
"""The longest name that Spark gives a socket."""
SOCKET_BYTES_MAX = 107
"""The longest path of a socket that Linux takes."""
_STATED = re.compile(r"causal\.errors\.(PipelineError|CorruptData): (.*)")
_FENCED = re.compile(r"causal\.errors\.Fenced: (.*)")
FENCED_S = 10.0
"""The pause of a driver that another one has replaced: two that run at the same time must not hinder each other."""
BEGIN_TRIES_MAX = 20
_RAISED = re.compile(r"[\w.]+(Error|Exception|Violation|Fenced|Unavailable|NotCarried): ")


class _Failed(Exception):
    """The query failed for a reason that a restart may resolve."""


def configuration(source: SparkSource, work: Path, address: str = LOOPBACK) -> dict[str, str]:
    """Return Spark's configuration: small, quiet, and confined to `work`; the source's own entries take precedence.

    Args:
        address: the address at which executors reach the driver.
    """
    options = " ".join(
        [
            f"-Djava.io.tmpdir={work / 'tmp'}",
            f"-Dlog4j2.configurationFile={work / 'conf' / 'log4j2.properties'}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",  # halves the start-up time; the long-running work is done in Python
            "-XX:-UsePerfData",
        ]
    )
    return {
        "spark.master": source.master,
        "spark.app.name": "causal",
        "spark.driver.memory": source.memory,
        "spark.driver.extraJavaOptions": options,
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(source.partitions),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(source.batch_rows_max),
        "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
        "spark.sql.files.openCostInBytes": str(1 << 20),
        # Otherwise, listing more than 32 paths would start a Spark job.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
        "spark.sql.streaming.stopTimeout": "5s",
        "spark.python.daemon.module": spark_daemon.__name__,
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
        # Hadoop sets the mode of each file that it creates, regardless of the process's umask.
        "spark.hadoop.fs.permissions.umask-mode": f"{PRIVATE:03o}",
        **source.conf,
    }


def sockets(source: SparkSource, job_directory: Path) -> dict[str, str]:
    """Return the entries that connect Spark and its Python workers by sockets in the job's short directory.

    With TCP, each exchange waits 40 ms for an acknowledgement that the kernel delays. Executors on other hosts do not
    have that directory, and continue to use TCP.
    """
    try:
        directory = (job_directory / "runtime").read_text().strip()
    except FileNotFoundError:
        return {}
    if not source.local or len(os.fsencode(directory + _SOCKET_NAME)) > SOCKET_BYTES_MAX:
        return {}
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": directory}


def drive(
    source: SparkSource,
    place: IngestPlace,
    code: str = "",
    beside: Path | None = None,
    bounds: LogBounds = BOUNDS,
) -> int:
    """Run the query of a source until it ends, and return the process's exit status.

    The call controls the whole process: SIGTERM and SIGINT end the process, and the call waits for all its children.

    Args:
        code: the digest of the archive from which Spark's workers import the pipeline's modules.
        beside: without an archive, the directory from which the workers import them.
        bounds: the bounds of the log.
    """
    try:
        _drive(source, place, code, beside, bounds)
    except (PipelineError, CorruptData) as problem:
        return _report(2, place.name, str(problem))
    except Fenced as problem:
        status = _report(1, place.name, str(problem))
        if place.store:
            time.sleep(FENCED_S)
        return status
    except (CausalError, _Failed) as problem:
        return _report(1, place.name, str(problem))
    return 0


def _report(status: int, name: str, problem: str) -> int:
    print(f"source {name!r}: {' '.join(problem.split())}", file=sys.stderr, flush=True)
    return status


def _drive(source: SparkSource, place: IngestPlace, code: str, beside: Path | None, bounds: LogBounds) -> None:
    source.check()
    directory = place.directory
    directory.mkdir(parents=True, exist_ok=True)
    if not place.store and _has_ended(place.open()):
        return
    with _alone(directory / "driver.lock") as lock, _jvm(directory / "spark-work", lock) as jvm:
        _export_code(place, code, beside)
        address = _address(source, place.job_directory)
        _start_jvm(source, jvm, address, place, code)  # before a store's client starts threads
        log = place.open()
        if place.store and _has_ended(log):
            return
        place, token = _begun(place, log)
        spark = _session()
        try:
            publisher = _publisher(source, place, token, jvm, bounds)
            _await(_start(_frame(source, spark, jvm), source, publisher, place, jvm), publisher)
        except UserCodeFailed as problem:
            raise _counted(source, log, Failures(directory), problem) from problem
        finally:
            if jvm.running:
                spark.stop()
        log = place.open()
        insisted(lambda: log.end(token))


def _has_ended(log: IngestLog) -> bool:
    """Create the log unless it exists, and return whether the query has ended."""
    insisted(log.create)
    return insisted(log.ended) is not None


def _begun(place: IngestPlace, log: IngestLog) -> tuple[IngestPlace, int]:
    """Take over the log and make Spark's checkpoint match it; return the place to write to and a token.

    Raises:
        PipelineError: the log and the checkpoint belong to different queries.
        CorruptData: the log or the checkpoint lacks data that the other one has.
    """
    from operators.spark.writer import last_committed, stored_query

    path = place.directory / CHECKPOINT
    checkpoint = checkpoint_of(place)
    if checkpoint is None:
        log.check_query(stored_query(path))
        log.check_committed(last_committed(path))
        token = log.take_over()
        return replace(place, resumed=max(log.batches(), default=-1)), token
    token = insisted(log.take_over)
    resumed = insisted(lambda: _restored(log, checkpoint))
    insisted(lambda: log.check_query(stored_query(path)))
    return replace(place, resumed=resumed), token


def _restored(log: IngestLog, checkpoint: StoredCheckpoint) -> int:
    """Restore the last batch's checkpoint on this host's disk; return that batch, or -1 if there is none."""
    for _ in range(BEGIN_TRIES_MAX):
        batch = max(log.batches(), default=-1)
        manifest = log.manifest(batch)
        try:
            checkpoint.restore(manifest.checkpoint if manifest is not None else "")
            return batch
        except Missing:
            if batch == max(log.batches(), default=-1):
                raise
    raise Unavailable(f"{log.where}: another driver publishes batches faster than their checkpoints can be read")


def _address(source: SparkSource, job_directory: Path) -> str:
    """Return the address at which executors reach this driver: loopback if Spark runs its tasks on this machine."""
    host = None if source.local else HostFile.load(job_directory)
    return LOOPBACK if host is None else host.address


@contextmanager
def _alone(path: Path) -> Iterator[int]:
    """Yield the lock that only one running driver can hold.

    The driver's JVM holds the lock too, so the lock is free only when both have ended.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not lock(descriptor, PREDECESSOR_WAIT_S):
            raise Unavailable(f"another driver has locked {path}")
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _jvm(work: Path, lock: int) -> Iterator[SparkJvm]:
    """Yield a JVM to start; it ends with the context or on a signal, whatever the main thread is doing at that time."""
    jvm = SparkJvm(work, lock)

    def end() -> None:
        # A py4j thread may be waiting for the answer to a request to release an object, and would only log a traceback.
        logging.disable(logging.CRITICAL)
        jvm.end()

    def stop(signum: int, frame: FrameType | None) -> None:
        end()  # and exit directly, because an exception raised inside a finaliser would be lost
        os._exit(128 + signum)

    earlier = {signum: signal.signal(signum, stop) for signum in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield jvm
    finally:
        end()
        for signum, handler in earlier.items():
            signal.signal(signum, handler)


def _export_code(place: IngestPlace, code: str, beside: Path | None) -> None:
    """Allow Spark's Python workers to import this project's packages and the run's code."""
    places = [str(Path(__file__).resolve().parents[2])]
    if beside is not None and not code:
        places.append(str(beside))
    inherited = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([*places, *filter(None, [inherited])])
    os.environ.update(_code_environment(place, code))


def _code_environment(place: IngestPlace, code: str) -> dict[str, str]:
    """Return the variables for Python workers, on this host and in executors on other hosts.

    The package must be installed on the hosts of the executors.
    """
    return {
        "PYTHONSAFEPATH": "1",  # Spark starts workers with -m, which must not import from the working directory
        spark_daemon.JOB: str(place.job_directory),
        spark_daemon.CODE: code,
        spark_daemon.STORE: place.store,
        spark_daemon.PLACE: place.prefix,
    }


def _start_jvm(source: SparkSource, jvm: SparkJvm, address: str, place: IngestPlace, code: str) -> None:
    import pyspark

    if address != LOOPBACK:
        os.environ.setdefault("SPARK_LOCAL_IP", address)
    conf = sockets(source, place.job_directory) | configuration(source, jvm.work, address)
    if not source.local:
        variables = _code_environment(place, code).items()
        conf = {**{f"spark.executorEnv.{name}": value for name, value in variables if value}, **conf}
    python = os.environ.get("PYSPARK_PYTHON") or source.conf.get("spark.pyspark.python") or sys.executable
    jvm.start(conf, Path(pyspark.__file__).resolve().parent, java_home(find_java(), jvm.work), python)


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    try:
        return SparkSession.builder.getOrCreate()
    except Exception as problem:  # any error of the JVM before it receives the user's query
        raise _Failed(f"Spark did not start: {_first_line(problem)}") from problem


def _frame(source: SparkSource, spark: SparkSession, jvm: SparkJvm) -> DataFrame:
    """Return the user's DataFrame after checking that it is a streaming one whose rows can be records."""
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.types import to_arrow_schema

    from operators.records.arrow_rows import check_carried

    _pickle_by_value(source.read)
    try:
        frame = source.read(spark)
    except Exception as problem:  # errors of the user's code, and every kind of Spark error
        raise _mistake(jvm, "read(spark) raised", problem) from problem
    if not isinstance(frame, DataFrame):
        raise PipelineError(f"read(spark) returned {type(frame).__name__}; return a streaming DataFrame")
    if not frame.isStreaming:
        raise PipelineError("read(spark) returned a DataFrame that is not streaming; use spark.readStream")
    try:
        schema = to_arrow_schema(frame.schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")
    except Exception as problem:  # types that Arrow lacks
        raise _mistake(jvm, "a column has a type that cannot be encoded; cast it in read()", problem) from problem
    check_carried(schema)
    return frame


def _pickle_by_value(read: Callable[..., object]) -> None:
    """Send the pipeline file's functions to Spark's workers by value, because the workers cannot import that file."""
    from pyspark.cloudpickle import register_pickle_by_value

    for name in {getattr(read, "__module__", None), PIPELINE_MODULE} - {"__main__", None}:
        if name in sys.modules:
            register_pickle_by_value(sys.modules[name])


def _publisher(source: SparkSource, place: IngestPlace, token: int, jvm: SparkJvm, bounds: LogBounds) -> BatchPublisher:
    from operators.spark.writer import BatchPublisher

    checkpoint = place.directory / CHECKPOINT
    return BatchPublisher(place, token, checkpoint, bounds, not source.local, lambda: jvm.running)


def _start(
    frame: DataFrame, source: SparkSource, publisher: BatchPublisher, place: IngestPlace, jvm: SparkJvm
) -> StreamingQuery:
    writer = (
        frame.writeStream.foreachBatch(publisher.publish)
        .outputMode(source.output_mode)
        .option("checkpointLocation", str(place.directory / CHECKPOINT))
    )
    paced = writer.trigger(availableNow=True) if source.available_now else writer.trigger(processingTime=source.trigger)
    try:
        return paced.start()
    except Exception as problem:  # Spark analyses the whole plan here
        raise _mistake(jvm, "Spark refused the query", problem) from problem


def _await(query: StreamingQuery, publisher: BatchPublisher) -> None:
    try:
        query.awaitTermination()
    except Exception as problem:  # an error from Spark, or from the end of its JVM
        cause = publisher.problem or problem
        if isinstance(cause, CausalError):
            raise cause from problem
        text = str(cause)
        stated = _STATED.search(text)
        if stated:
            kind = PipelineError if stated[1] == "PipelineError" else CorruptData
            raise kind(stated[2].strip()) from problem
        fenced = _FENCED.search(text)
        if fenced:
            raise Fenced(fenced[1].strip()) from problem
        raised = user_error(text)
        if raised is not None:
            raise UserCodeFailed(raised) from problem
        raise _Failed(f"the query failed: {_first_line(cause)}") from problem


def _counted(source: SparkSource, log: IngestLog, failures: Failures, problem: UserCodeFailed) -> Exception:
    """Return the error for a failure of the user's code, which either restarts Spark or ends the job."""
    batch = max(insisted(log.batches), default=-1) + 1
    count = failures.count(batch)
    if count < source.failures_max:
        return _Failed(f"batch {batch} failed (attempt {count} of {source.failures_max}): {problem}")
    failures.forget()
    return PipelineError(
        f"batch {batch} failed {count} times in a row: {problem}; correct read() for that row, then resume"
    )


def _mistake(jvm: SparkJvm, what: str, problem: Exception) -> Exception:
    if not jvm.running:
        return _Failed(f"Spark's JVM died: {_first_line(problem)}")
    return PipelineError(f"{what}: {type(problem).__name__}: {_first_line(problem)}")


def _first_line(problem: Exception) -> str:
    """Return the most informative line of an error: the end of a Python traceback, or else the first line."""
    lines = str(problem).strip().splitlines()
    stated = [line for line in lines if _RAISED.match(line)]
    return next(iter([*stated, *lines]), type(problem).__name__)


def main(argv: Sequence[str]) -> int:
    """Find the source in the job's pipeline and drive it."""
    if len(argv) != 2:
        return _report(2, "?", "usage: python -m operators.spark.driver JOB_DIRECTORY SOURCE")
    job_directory, name = Path(argv[0]).resolve(), argv[1]
    processlog.begin(job_directory / "logs" / f"companion-{name}.log", lambda: name)
    logging.getLogger("py4j").setLevel(logging.WARNING)  # below that level, py4j logs each command
    try:
        config = JobConfig.load(job_directory)
        source = load_of_job(job_directory, config, lasting=True).sources.get(name)
        if not isinstance(source, SparkSource):
            raise PipelineError(f"{config.pipeline} has no SparkSource with that name")
    except PipelineError as problem:
        return _report(2, name, str(problem))
    place = IngestPlace(job_directory, name, source.partitions, config.store, config.place_in_store)
    bounds = LogBounds(config.ingest_bytes_max, config.kept_input_bytes_max)
    return drive(source, place, config.code, Path(config.pipeline).parent, bounds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
