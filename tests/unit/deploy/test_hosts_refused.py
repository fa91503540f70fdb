"""Hosts and jobs of several hosts refuse what is wrong in one line, with status 2, before anything has begun."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from causal.config import JobConfig
from causal.network.curve import new_key
from causal.network.roster import save_key
from causal.storage import shared as depot
from deploy import cli
from deploy.cli import main
from tests.unit.deploy import tiny

PIPELINE = tiny.text(tiny.KEYED, f'{tiny.ROWS}, host=pipeline.settings.get("place", "a") or None')

LISTEN = ["--listen", "tcp://127.0.0.1:7799"]
STORE = ["--store", "file:///tmp/causal-refused-store"]
KEYS = ["--key", "keys/supervisor.key", "--hosts", "keys/hosts.toml"]
SEVERAL = ["run", "p.py", *LISTEN, *STORE, *KEYS]
PLAIN = ["agent", "--join", "tcp://127.0.0.1:7799"]

WRONG = {
    "out/0: JsonLinesSink keeps its rows on": [*SEVERAL, "--set", "place=", "--guarantee", "epoch"],
    "--rollback returns to an earlier version of a job; add --resume": [*SEVERAL, "--rollback"],
    "--listen needs --store URL": ["run", "p.py", *LISTEN],
    "--hosts is for a multi-host job": ["run", "p.py", *STORE, "--hosts", "keys/hosts.toml"],
    "--key is for a multi-host job": ["run", "p.py", *STORE, "--key", "keys/supervisor.key"],
    "--key and --hosts belong together": ["run", "p.py", *LISTEN, *STORE, "--key", "keys/supervisor.key"],
    "can be reached from the network; use --key and --hosts": ["run", "p.py", "--listen", "tcp://0.0.0.0:7799", *STORE],
    "udp://h:1 is not an address": ["run", "p.py", "--listen", "udp://h:1", *STORE, *KEYS],
    "is not the key of [supervisor]": ["run", "p.py", *LISTEN, *STORE, "--key", "keys/a.key", *KEYS[2:]],
    "does not name any host": [
        "run",
        "p.py",
        *LISTEN,
        *STORE,
        "--key",
        "none/supervisor.key",
        "--hosts",
        "none/hosts.toml",
    ],
    "open.key can be read by other users": ["run", "p.py", *LISTEN, *STORE, "--key", "open.key", *KEYS[2:]],
    "torn.toml is not valid TOML": ["run", "p.py", *LISTEN, *STORE, *KEYS[:2], "--hosts", "torn.toml"],
    "out/0: JsonLinesSink keeps its rows on the machine": [*SEVERAL, "--set", "place="],
    "out/0 is placed on z, which": [*SEVERAL, "--set", "place=z"],
    "setting store is 'ftp://x'; it must be file:///": ["run", "p.py", *LISTEN, "--store", "ftp://x", *KEYS],
    "--join tcp://10.0.0.1:7700 is a network address": ["agent", "--join", "tcp://10.0.0.1:7700"],
    "--address 192.0.2.2 is a network address; use --key": [*PLAIN, "--address", "192.0.2.2"],
    "nowhere is not an address": ["agent", "--join", "nowhere", "--key", "keys/a.key"],
    "absent.key cannot be read": ["agent", "--join", "tcp://127.0.0.1:7799", "--key", "keys/absent.key"],
    "lacks the supervisor's public key": ["agent", "--join", "tcp://127.0.0.1:7799", "--key", "alone/a.key"],
    "--slots 0: use a number from 1": ["agent", "--join", "tcp://127.0.0.1:7799", "--slots", "0"],
    "--label 'gpu': use NAME=VALUE": ["agent", "--join", "tcp://127.0.0.1:7799", "--label", "gpu"],
    "--drain-timeout -1.0: use 0 to": ["agent", "--join", "tcp://127.0.0.1:7799", "--drain-timeout", "-1"],
    "--name 'B!'": ["agent", "--join", "tcp://127.0.0.1:7799", "--name", "B!"],
    "already has a key for a": ["keys", "new", "a", "--dir", "keys"],
    "'A' is not a valid host name": ["keys", "new", "A", "--dir", "keys"],
    "does not contain a job": ["drain", "a", "--state-dir", "absent"],
}


@pytest.fixture(autouse=True)
def _with_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.py").write_text(PIPELINE)
    Path("torn.toml").write_text("[a\n")
    for name in ("supervisor", "a", "b"):
        save_key(Path("keys"), new_key(name))
    save_key(Path("none"), new_key("supervisor"))
    save_key(Path("alone"), new_key("a"))
    Path("open.key").write_text(Path("keys/supervisor.key").read_text())
    Path("open.key").chmod(0o644)
    (tmp_path / "saved").mkdir()
    JobConfig(run="r", name="tiny", pipeline=str(tmp_path / "p.py")).save(tmp_path / "saved")


@pytest.mark.parametrize("said", WRONG)
def test_a_mistake_with_hosts_is_one_line_and_status_2(said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(WRONG[said]) == 2
    heard = capsys.readouterr()
    [line] = heard.err.splitlines()
    assert line.startswith("causal: ") and said in line
    assert heard.out == ""
    assert not Path("rows").exists() and not list(Path(".causal").glob("*/journal.sqlite"))


@pytest.fixture
def port_in_use() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def test_an_address_that_is_in_use_ends_the_job_with_one_line(
    port_in_use: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    endpoint = f"tcp://127.0.0.1:{port_in_use}"
    status = main(["run", "p.py", "--listen", endpoint, "--store", f"file://{tmp_path}/store", *KEYS])
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("causal: ")]
    assert (status, len(lines)) == (2, 1), lines
    assert not list(Path(".causal").glob("*/journal.sqlite"))
    assert f"--listen {endpoint} cannot be bound: Address already in use; use another address or port" in lines[0]


@pytest.fixture
def store_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """An S3 server that does not answer, which is asked once."""
    for name, value in {
        "AWS_ENDPOINT": "http://127.0.0.1:9",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "none",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
    }.items():
        monkeypatch.setenv(name, value)
    client = depot._client
    monkeypatch.setattr(depot, "_client", lambda url, retry_s, options: client(url, 0.0, options))


@pytest.mark.usefixtures("store_away")
def test_a_store_that_does_not_answer_is_one_line_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed (extra hosts)")
    assert main(["run", "p.py", *LISTEN, "--store", "s3://bucket/here", *KEYS]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "warning" not in line]
    assert len(lines) == 1, lines
    assert lines[0].startswith("causal: store s3://bucket/here: ") and "cannot be listed" in lines[0]
    assert lines[0].endswith("; check the URL and the credentials")


@pytest.mark.usefixtures("store_away")
def test_a_resumption_without_its_store_says_the_same(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed (extra hosts)")
    monkeypatch.setattr(cli, "_deploy", lambda *arguments: 0)
    assert main(["run", "p.py", *LISTEN, "--store", f"file://{tmp_path}/store", *KEYS]) == 0
    job = tmp_path / ".causal" / "tiny"
    replace(JobConfig.load(job), store="s3://bucket/here").save(job)
    capsys.readouterr()
    assert main(["run", "p.py", *LISTEN, "--store", "s3://bucket/here", *KEYS, "--resume"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("; check the URL and the credentials")
