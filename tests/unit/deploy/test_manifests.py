"""Manifests and units fit the schemas of Kubernetes and systemd and each other, and their commands are ours."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from deploy import cli
from deploy.exit_status import FAILED, WRONG
from deploy.launching.local import AGENT_STOP_S
from deploy.monitoring.probe import OLD_S
from standby.candidate.election import FILE as IDENTITY
from standby.candidate.election import RESUMPTION, Identity, begun
from standby.network.gate import address_of
from standby.storage.journal import FILE as JOURNAL
from tests.unit.deploy.manifests import resumption

DEPLOY = Path(__file__).parents[3] / "deploy"
HOSTS = ("a", "b")
VERSIONS = ("1.29", "1.37")
Document = dict[str, Any]


parser = cache(cli.parser)


@cache
def documents() -> list[Document]:
    """Return every object, as `kubectl apply` gets it: the file of agents once for each host."""
    texts = [(DEPLOY / "kubernetes" / f"{name}.yaml").read_text() for name in ("supervisor", "network", "job")]
    agent = (DEPLOY / "kubernetes" / "agent.yaml").read_text()
    texts += [agent.replace("$HOST", host) for host in HOSTS]
    return [each for text in texts for each in yaml.safe_load_all(text) if each is not None]


def workloads() -> list[Document]:
    return [each for each in documents() if each["kind"] in ("StatefulSet", "Deployment")]


def containers() -> Iterator[tuple[Document, Document]]:
    """(pod, container) of each, init containers as well."""
    for each in workloads():
        pod = each["spec"]["template"]["spec"]
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            yield pod, container


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_fits_the_schemas_of_kubernetes(version: str) -> None:
    kinds = [kubernetes_validate.validate(each, version, strict=True) and each["kind"] for each in documents()]
    assert sorted(set(kinds)) == ["Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service", "StatefulSet"]
    names = [(each["kind"], each["metadata"]["name"]) for each in documents()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_with_bounded_input_fails_where_a_restart_does_not_help(version: str) -> None:
    (text,) = re.findall(
        r"```yaml\n(.*?)```", (DEPLOY.parent / "docs" / "guide" / "rollouts.md").read_text(), re.DOTALL
    )
    (template,) = (each["spec"]["template"] for each in workloads() if each["metadata"]["name"] == "causal-job")
    template = {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}
    spec = {**yaml.safe_load(text), "template": template}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "causal-job"}, "spec": spec}
    kubernetes_validate.validate(job, version, strict=True)
    failing, _ = spec["podFailurePolicy"]["rules"]
    assert failing["onExitCodes"]["values"] == [FAILED, WRONG]


def test_selectors_find_the_pods() -> None:
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in workloads()]
    for each in documents():
        spec = each["spec"]
        selector = spec.get("selector") or spec.get("podSelector")
        wanted = selector.get("matchLabels", selector)
        assert any(wanted.items() <= of_pod.items() for of_pod in labels), each["metadata"]["name"]
    for each in workloads():
        assert each["spec"]["selector"]["matchLabels"] == each["spec"]["template"]["metadata"]["labels"]
        assert each["spec"]["replicas"] == 1


def test_no_container_has_more_rights_than_it_needs() -> None:
    for pod, container in containers():
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] >= 10_000
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"] and not rights["allowPrivilegeEscalation"]
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]


def test_what_containers_mount_is_in_their_pod() -> None:
    for each in workloads():
        pod = each["spec"]["template"]["spec"]
        claims = [claim["metadata"]["name"] for claim in each["spec"].get("volumeClaimTemplates", ())]
        volumes = {*claims, *(volume["name"] for volume in pod["volumes"])}
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


def commands() -> Iterator[tuple[Document, list[str]]]:
    """(container, arguments of `causal`) of each command line in the manifests, probes as well."""
    for _, container in containers():
        shell = re.search(r"causal (run .*)", " ".join(container.get("args", ())))
        if shell is not None:
            yield container, shlex.split(re.sub(r"\$\(.*\)", "--resume", shell[1]))
        elif "args" in container:
            yield container, container["args"]
        for name, probe in container.items():
            if name.endswith("Probe"):
                assert probe["exec"]["command"][0] == "causal"
                yield container, probe["exec"]["command"][1:]


def test_every_command_line_is_one_that_causal_takes() -> None:
    taken = [parser().parse_args(arguments) for _, arguments in commands()]
    assert len(taken) == (1 + 2) * 2 + 3 * len(HOSTS)


def test_agents_join_the_supervisor_with_their_keys_and_keep_what_the_probes_look_at() -> None:
    named = [each["metadata"]["name"] for each in documents() if each["kind"] == "Service"]
    runs = [parser().parse_args(line) for _, line in commands() if line[0] == "run"]
    (supervisor,) = (each for each in runs if each.listen)
    _, port = address_of(supervisor.listen)
    for container, line in commands():
        directory = parser().parse_args(line).state_dir
        mounts = [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
        assert any(directory.startswith(f"{mount}/") for mount in mounts)
        if line[0] == "agent":
            (join,) = parser().parse_args(line).join
            assert address_of(join) == (named[0], port)
    for pod, container in containers():
        if container["name"] == "agent":
            (secret,) = (volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume)
            key = parser().parse_args(container["args"]).key
            assert secret.removeprefix("causal-key-") == Path(key).stem


def test_the_pod_of_a_supervisor_resumes_a_job_that_has_begun(tmp_path: Path) -> None:
    assert resumption(tmp_path) == ""
    Identity("holder").save(tmp_path)
    assert resumption(tmp_path) == "--resume", "it has been enrolled, and may have been elected"
    for name in (JOURNAL, RESUMPTION):
        (tmp_path / name).touch()
    begun(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [IDENTITY]
    assert resumption(tmp_path) == "--resume"


def test_the_pod_of_a_job_resumes_it_once_it_has_a_journal(tmp_path: Path) -> None:
    assert resumption(tmp_path, "job") == ""
    (tmp_path / JOURNAL).touch()
    assert resumption(tmp_path, "job") == "--resume"


def test_metrics_can_be_scraped_where_pods_run() -> None:
    rules = next(each for each in documents() if each["kind"] == "NetworkPolicy")["spec"]["ingress"]
    admitted = {port["port"] for rule in rules for port in rule.get("ports", ())}
    for workload in workloads():
        if workload["kind"] != "StatefulSet":
            continue
        template = workload["spec"]["template"]
        (container,) = template["spec"]["containers"]
        (line,) = (each for within, each in commands() if within == container and each[0] == "run")
        address, port = parser().parse_args(line).metrics_listen
        assert address == "0.0.0.0" and port in admitted
        assert template["metadata"]["annotations"]["prometheus.io/port"] == str(port)
        assert {"name": "metrics", "containerPort": port} in container["ports"]


def test_a_new_image_is_an_upgrade_and_an_earlier_one_a_rollback() -> None:
    for pod, container in containers():
        if " run " in " ".join(container.get("args", ())):
            assert "--savepoint-on-sigterm --rollback-on-earlier-code " in container["args"][0]
            assert pod["terminationGracePeriodSeconds"] >= 120
            # The last sign of life of the container before does not end the time that an upgrade has.
            assert container["startupProbe"]["initialDelaySeconds"] > OLD_S


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="`kubectl` is not installed")
def test_kubectl_gives_a_new_image_to_every_container(tmp_path: Path) -> None:
    path = tmp_path / "workload.yaml"
    for each in workloads():
        path.write_text(yaml.safe_dump(each))
        command = ["kubectl", "set", "image", "--local", "-f", str(path), "*=causal-job:2", "-o", "yaml"]
        home = {**os.environ, "HOME": str(tmp_path)}  # kubectl looks for its settings there
        changed = subprocess.run(command, capture_output=True, text=True, check=True, env=home).stdout
        pod = yaml.safe_load(changed)["spec"]["template"]["spec"]
        images = {container["image"] for container in (*pod.get("initContainers", ()), *pod["containers"])}
        assert images == {"causal-job:2"}


def test_a_service_retries_only_what_may_pass_and_has_a_place_for_options() -> None:
    unit = (DEPLOY / "systemd" / "causal@.service").read_text()
    line = re.search(r"^ExecStart=.*causal (run .*)'$", unit, re.MULTILINE)
    assert line is not None and "$$CAUSAL_OPTIONS" in line[1] and "EnvironmentFile=-/etc/causal/%i.env" in unit
    words = shlex.split(re.sub(r"\$\$\(.*\)|\$\$CAUSAL_OPTIONS", "", line[1]))
    arguments = parser().parse_args(words)
    never = re.search(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)
    assert never is not None and never[1].split() == ["1", "2"]
    assert arguments.savepoint_on_sigterm and str(arguments.temporary_status) not in never[1].split()


def test_a_pod_and_a_service_have_the_time_that_draining_takes() -> None:
    for pod, container in containers():
        if container["name"] == "agent":
            drain_s = parser().parse_args(container["args"]).drain_timeout
            assert pod["terminationGracePeriodSeconds"] > drain_s + AGENT_STOP_S
    unit = (DEPLOY / "systemd" / "causal-agent@.service").read_text()
    line = re.search(r"^ExecStart=/opt/causal/bin/causal (.*) \$CAUSAL_OPTIONS$", unit, re.MULTILINE)
    stop_s = re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert line is not None and stop_s is not None
    assert int(stop_s[1]) > parser().parse_args(shlex.split(line[1])).drain_timeout + AGENT_STOP_S


def test_a_lost_node_is_given_up_in_seconds_and_hosts_are_on_different_nodes() -> None:
    for each in workloads():
        pod = each["spec"]["template"]["spec"]
        if each["kind"] == "Deployment":
            assert each["spec"]["strategy"] == {"type": "Recreate"}
            tolerated = {each["key"].partition("/")[2]: each["tolerationSeconds"] for each in pod["tolerations"]}
            assert tolerated == {"unreachable": 5, "not-ready": 5}
            spread = {rule["topologyKey"]: rule for rule in pod["topologySpreadConstraints"]}
            assert spread["kubernetes.io/hostname"]["whenUnsatisfiable"] == "DoNotSchedule"
            assert "host" not in spread["kubernetes.io/hostname"]["labelSelector"]["matchLabels"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="`systemd-analyze` is not installed")
@pytest.mark.parametrize("unit", ["causal@shop.service", "causal-agent@b.service"])
def test_systemd_understands_its_units(unit: str, tmp_path: Path) -> None:
    template = f"{unit.partition('@')[0]}@.service"
    text = (DEPLOY / "systemd" / template).read_text().replace("/opt/causal/bin/causal", "/bin/true")
    for name in (template, unit):
        (tmp_path / name).write_text(text)
    checked = subprocess.run(["systemd-analyze", "verify", str(tmp_path / unit)], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_image_runs_as_a_user_who_owns_nothing_but_the_state() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    instructions = [line.split(maxsplit=1) for line in lines if re.match(r"[A-Z]+ ", line)]
    last = [argument for name, argument in instructions if name == "FROM"][-1]
    assert last.endswith("-slim")
    assert ["USER", "10001"] in instructions and ["ENTRYPOINT", '["causal"]'] in instructions
    users = {pod["securityContext"]["runAsUser"] for pod, _ in containers()}
    assert users == {10001}
    (extras,) = {extra for line in lines for extra in re.findall(r"\[([a-z,]+)\]\"", line)}
    settings = (DEPLOY.parent / "setup.cfg").read_text()
    assert "hosts" in extras and all(f"\n{extra} =\n" in settings for extra in extras.split(","))


def test_the_image_is_built_from_what_the_package_needs() -> None:
    kept = {line[1:] for line in (DEPLOY.parent / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    packages = re.search(r"^include =\n((?:    .*\n)+)", (DEPLOY.parent / "setup.cfg").read_text(), re.MULTILINE)
    assert packages is not None
    assert {name.strip().rstrip("*") for name in packages[1].splitlines()} <= kept
    assert {"README.md", "LICENSE", "pyproject.toml", "setup.cfg"} <= kept
    assert all((DEPLOY.parent / name).exists() for name in kept)
