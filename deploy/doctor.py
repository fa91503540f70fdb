"""`causal doctor`: checks this machine against the requirements of jobs and prints one line per check.

ok       the requirement is met
note     something is missing that only some jobs need
wrong    something is missing that every job needs; the exit status is 1
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import resource
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from causal.errors import CausalError, PipelineError
from deploy.installation import installed
from deploy.ui.dashboard import PORT as DASHBOARD_PORT
from operators.spark.java import find_java

OK, NOTE, WRONG = "ok", "note", "wrong"
PYTHON_MIN = (3, 11)
FILES_MIN = 4096
"""The number of open files that a process of a large job needs: one or two sockets per channel."""
DISK_BYTES_MIN = 1 << 30
REQUIRED = {
    "pyzmq": "27.3", "msgpack": "1.2.4", "ormsgpack": "1.13.1", "msgspec": "0.20", "lz4": "4.4.5", "xxhash": "3.5",
    "prometheus-client": "0.26", "rich": "14",
}  # fmt: skip
"""Package → the lowest supported version."""
EXTRAS = {
    "arrow": ("pyarrow", "numpy"),
    "spark": ("pyspark", "pyarrow", "pandas"),
    "postgres": ("psycopg",),
    "redis": ("redis",),
    "kafka": ("confluent_kafka", "fastavro"),
    "websocket": ("websockets",),
    "nats": ("nats",),
    "delta": ("deltalake", "pyarrow"),
    "iceberg": ("pyiceberg", "pyarrow", "sqlalchemy"),
    "hosts": ("obstore",),
    "ui": ("starlette", "uvicorn", "textual"),
    "debug": ("debugpy",),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
}
KAFKA_S = NATS_S = 5.0
"""The longest time that a cluster may need to answer."""
NATS_ATOMIC = 2
"""The level of JetStream's API from which on there are atomic batches (NATS 2.12)."""
SOCKET_PATH_MAX = 100
"""The length of the longest socket path; the kernel allows 108 bytes."""

Line = tuple[str, str, str]
"""(OK, NOTE or WRONG; subject; finding, with the remedy if there is one)."""


def add_parser(commands: Any) -> None:
    """Add this command to those of `causal`."""
    looking = commands.add_parser("doctor", help="check Python, packages, Java, disk, ports and limits of this machine")
    looking.add_argument("--state-dir", metavar="DIR", default=".", help="where jobs will keep their state; default: .")
    looking.add_argument(
        "--port",
        type=int,
        action="append",
        default=[],
        metavar="PORT",
        help=f"a port that must be free; default: {DASHBOARD_PORT}, which may be used",
    )
    looking.add_argument(
        "--kafka", metavar="SERVERS", default="", help="brokers that must answer and have transactions, as one:9092,two"
    )
    looking.add_argument(
        "--objects", metavar="URL", default="", help="objects that must be readable, as s3://bucket/in/*.csv"
    )
    looking.add_argument(
        "--nats",
        metavar="SERVERS",
        default="",
        help="servers that must answer and have JetStream, as one:4222,two:4222",
    )
    looking.set_defaults(act=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the results of all checks; return 1 if any of them is wrong."""
    lines = list(examined(Path(arguments.state_dir), arguments.port))
    if arguments.kafka:
        lines.append(kafka(arguments.kafka))
    if arguments.objects:
        lines.append(objects(arguments.objects))
    if arguments.nats:
        lines.append(nats(arguments.nats))
    for state, subject, text in lines:
        print(f"{state:<6} {subject:<10} {text}")
    return 1 if any(state == WRONG for state, _, _ in lines) else 0


def examined(directory: Path, ports: list[int]) -> Iterator[Line]:
    """Perform all checks, in the order in which their results are printed."""
    yield python(sys.version_info[:2])
    yield system(sys.platform)
    yield packages()
    yield java(find_java)
    yield disk(directory)
    yield open_files(resource.getrlimit(resource.RLIMIT_NOFILE))
    yield sockets()
    if not ports:
        yield dashboard_port(DASHBOARD_PORT)
    for port in ports:
        yield free(port)
    for name, needed in EXTRAS.items():
        missing = [package for package in needed if _is_missing(package)]
        if missing:
            yield (
                NOTE,
                "extra",
                f"{name}: {', '.join(missing)} missing; `pip install 'causal-streams[{name}]'` if needed",
            )


def _is_missing(package: str) -> bool:
    try:
        return find_spec(package) is None
    except ModuleNotFoundError:  # the parent package is missing, too
        return True


def python(version: tuple[int, ...]) -> Line:
    """Check the Python version."""
    text = f"{version[0]}.{version[1]} ({sys.executable}), causal-streams {installed()}"
    if version[:2] < PYTHON_MIN:
        return WRONG, "Python", f"{text}; install 3.11 or later"
    return OK, "Python", text


def system(name: str) -> Line:
    """Check that the operating system is Linux."""
    text = f"{platform.system()} {platform.release()}, {os.cpu_count()} cores"
    if name != "linux":
        return WRONG, "system", f"{text}; use Linux: pidfd and /proc are needed"
    return OK, "system", text


def packages() -> Line:
    """Check that a supported version of every required package is installed."""
    versions, missing, old = [], [], []
    for name, first in REQUIRED.items():
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(f"{name}>={first}")
            continue
        versions.append(f"{name} {version}")
        if _numbers(version) < _numbers(first):
            old.append(f"{name}>={first}")
    if missing or old:
        lacking = "; ".join(
            f"{what}: {', '.join(names)}" for what, names in (("missing", missing), ("too old", old)) if names
        )
        return WRONG, "packages", f"{lacking}; run `pip install {' '.join(repr(each) for each in missing + old)}`"
    return OK, "packages", ", ".join(versions)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version string."""
    begun = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in begun[0].split(".")) if begun else ()


def java(find: Callable[[], Any]) -> Line:
    """Check for a Java installation, which only SparkSource needs."""
    try:
        home = find()
    except PipelineError as problem:
        return NOTE, "Java", f"only SparkSource needs one: {problem}"
    return OK, "Java", f"{home.version} ({home.home}), for SparkSource"


def disk(directory: Path) -> Line:
    """Check that the directory is writable and that its disk has free space."""
    place = directory.absolute()
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        return WRONG, "disk", f"{place} cannot be written; choose another --state-dir"
    left = shutil.disk_usage(place).free
    text = f"{left / (1 << 30):,.1f} GiB free at {place}"
    if left < DISK_BYTES_MIN:
        return WRONG, "disk", f"{text}; free some, or choose another --state-dir"
    return OK, "disk", text


def open_files(limits: tuple[int, int]) -> Line:
    """Check how many files a process may open."""
    soft, hard = limits
    if soft == resource.RLIM_INFINITY or soft >= FILES_MIN:
        return OK, "open files", f"{soft:,} per process" if soft != resource.RLIM_INFINITY else "no limit"
    able = "" if hard == resource.RLIM_INFINITY or hard >= FILES_MIN else " (as root: it is above the hard limit)"
    return NOTE, "open files", f"{soft:,} per process; for jobs with many tasks run `ulimit -n {FILES_MIN}` first{able}"


def sockets() -> Line:
    """Check that sockets can be created in the directory for temporary files, and that their paths are short enough."""
    import tempfile

    try:
        with tempfile.TemporaryDirectory(prefix="causal-") as directory, socket.socket(socket.AF_UNIX) as probe:
            path = f"{directory}/{'x' * 20}"
            if len(os.fsencode(path)) > SOCKET_PATH_MAX:
                return WRONG, "sockets", f"{tempfile.gettempdir()} is too long a path for sockets; set TMPDIR=/tmp"
            probe.bind(path)
    except OSError as problem:
        return WRONG, "sockets", f"none in {tempfile.gettempdir()}: {problem.strerror}; set TMPDIR to a local directory"
    return OK, "sockets", f"in {tempfile.gettempdir()}"


def kafka(servers: str) -> Line:
    """Check that a Kafka cluster answers, and that it has the transactions that `KafkaSink` needs."""
    from operators.kafka.kafka_cluster import cluster_of
    from operators.kafka.kafka_handles import Handle, require_kafka

    try:
        cluster = cluster_of("causal doctor --kafka", servers, None)
        require_kafka("causal doctor --kafka")
        import confluent_kafka

        writer = Handle(cluster, "producer", {"transactional.id": "causal.doctor"})
        try:
            brokers = writer.client.list_topics(timeout=KAFKA_S).brokers
            text = f"{cluster.place}: {len(brokers)} broker{'s' if len(brokers) != 1 else ''}"
            try:
                writer.client.init_transactions(KAFKA_S)
            except confluent_kafka.KafkaException as problem:
                why = writer.translated(problem, "transactions")
                return NOTE, "Kafka", f"{text}; {why}; without them use KafkaSink(…, transactions=False)"
            return OK, "Kafka", f"{text}, with transactions"
        except confluent_kafka.KafkaException as problem:
            return WRONG, "Kafka", str(writer.translated(problem))
        finally:
            writer.close()
    except CausalError as problem:
        return WRONG, "Kafka", str(problem)


def objects(url: str) -> Line:
    """Check that a store answers, and that one of the objects that match may be read."""
    from operators.sources.files.object_input import ObjectInput

    try:
        if "://" not in url:
            return WRONG, "objects", f"{url} is a path; use the URL of objects, as s3://BUCKET/in/*.csv"
        first = next(ObjectInput("causal doctor --objects", [url], {}).matching(may_be_none=True), None)
        if first is None:
            return NOTE, "objects", f"the store answers, but no object matches {url}"
        with first.open() as content:
            content.read(1)
        return OK, "objects", f"{first.shown} may be read ({first.size:,} bytes)"
    except CausalError as problem:
        return WRONG, "objects", str(problem)


def nats(servers: str) -> Line:
    """Check that NATS servers answer, and that they have JetStream with the atomic batches that `NatsSink` needs."""
    from operators.nats.nats_errors import Declined, translated
    from operators.nats.nats_link import Link, require_nats
    from operators.nats.nats_servers import servers_of

    try:
        named = servers_of("causal doctor --nats", servers, None)
        require_nats("causal doctor --nats")
        link = Link(named, NATS_S)
        try:
            account = link.call(lambda: link.api("INFO"))
        except Declined as problem:
            return WRONG, "NATS", str(translated(problem, named))
        finally:
            link.close()
    except CausalError as problem:
        return WRONG, "NATS", str(problem)
    if int(account.get("api", {}).get("level", 0)) < NATS_ATOMIC:
        return NOTE, "NATS", f"{named.place}: JetStream without atomic batches; NatsSink needs NATS 2.12 or later"
    return OK, "NATS", f"{named.place}: with JetStream and atomic batches"


def dashboard_port(port: int) -> Line:
    """Check the port that the dashboard uses by default."""
    state, subject, _ = free(port)
    if state == WRONG:
        return NOTE, subject, f"{port} is in use: `causal ui` uses another port"
    return OK, subject, f"{port} is free for `causal ui`; `--port` checks another port"


def free(port: int) -> Line:
    """Check that no process listens on a port of this machine."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except (OSError, OverflowError) as problem:
        why = getattr(problem, "strerror", None) or problem
        return WRONG, "port", f"{port}: {why}; choose another port, or end the process that uses it (`ss -ltnp`)"
    return OK, "port", f"{port} is free"
