"""The options of a job on a cluster: what is refused, where agents join, and the keys in the job's directory."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from causal.config import JobConfig
from causal.errors import PipelineError
from causal.network.curve import new_key
from causal.network.roster import ROSTER, SUPERVISOR, Roster, load_key, read_rosters, save_key, save_members
from deploy import cli
from deploy.spark.options import agent_names, default_listen, prepared
from standby.network.gate import EXECUTORS_ROSTER, address_of, rosters_of

MASTER = "spark://127.0.0.1:7077"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--on", MASTER], "--on needs --store URL"),
        (["--agents", "2"], "add --on"),
        (["--spark-conf", "spark.executor.cores=2"], "add --on"),
        (["--on", MASTER, "--store", "file:///s", "--spark-conf", "spark.x"], "--spark-conf spark.x: use NAME=VALUE"),
        (["--on", MASTER, "--store", "file:///s", "--spark-conf", "x=1"], "a name that begins with spark."),
        (["--on", "yarn", "--store", "file:///s"], "add --listen tcp://ADDRESS:PORT"),
        (["--on", MASTER, "--store", "file:///s", "--key", "k"], "--key and --hosts belong together"),
    ],
)
def test_options_that_cannot_be_meant_are_refused_in_one_line(
    options: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark")
    assert cli.main(["run", "nothing.py", *options]) == 2
    said = capsys.readouterr().err
    assert line in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("on", "mesos://a:1"), ("on", "local[2]"), ("agents", 0), ("spark_conf", {"spark.executor.cores": "two"})],
)
def test_settings_that_no_cluster_can_have_are_refused(field: str, value: object) -> None:
    with pytest.raises(PipelineError, match=f"setting {field} is"):
        JobConfig.from_mapping({"run": "r", "name": "n", "pipeline": "p", field: value}, "job.json")


def test_agents_join_at_the_address_towards_the_master_and_a_port_that_is_free() -> None:
    address, port = address_of(default_listen(MASTER))
    assert address == "127.0.0.1" and 7700 <= port < 7800
    assert address_of(default_listen("k8s://https://127.0.0.1:6443"))[0] == "127.0.0.1"
    assert address_of(default_listen("spark://127.0.0.1:7077,127.0.0.2:7077"))[0] == "127.0.0.1"


def config_of(job: Path, **settings: object) -> JobConfig:
    values = {"on": MASTER, "listen": "tcp://127.0.0.1:7700", "store": "file:///s", **settings}
    return JobConfig.from_mapping({"run": "r", "name": "n", "pipeline": "p", **values}, str(job))


def test_a_job_without_keys_gets_one_for_its_supervisor_which_a_resume_keeps(tmp_path: Path) -> None:
    config = prepared(config_of(tmp_path, agents=3), tmp_path)
    key = load_key(Path(config.key))
    assert key.name == SUPERVISOR and config.hosts_expected == 3
    assert stat.S_IMODE(Path(config.key).parent.stat().st_mode) == 0o700
    save_members(tmp_path / EXECUTORS_ROSTER, [new_key(name) for name in agent_names(3)])
    roster, _ = read_rosters(rosters_of(config, tmp_path))
    assert set(roster.members) == {SUPERVISOR, "spark-1", "spark-2", "spark-3"}
    assert load_key(Path(prepared(config, tmp_path).key)) == key
    roster, _ = read_rosters(rosters_of(config, tmp_path))
    assert set(roster.members) == {SUPERVISOR}, "keys of agents are those of one driver"


def test_hosts_of_the_user_take_part_beside_the_executors_unless_their_names_are_taken(tmp_path: Path) -> None:
    own = tmp_path / "own"
    for name in (SUPERVISOR, "edge"):
        save_key(own, new_key(name))
    paths = {"key": str(own / f"{SUPERVISOR}.key"), "hosts": str(own / ROSTER)}
    config = prepared(config_of(tmp_path, **paths), tmp_path)
    assert (config.key, config.hosts, config.hosts_expected) == (paths["key"], paths["hosts"], 3)
    assert {host.name for host in Roster.load(own / ROSTER).hosts} == {"edge"}, "the user's file is left alone"
    save_key(own, new_key("spark-2"))
    with pytest.raises(PipelineError, match="has a host spark-2"):
        prepared(config_of(tmp_path, **paths), tmp_path)
