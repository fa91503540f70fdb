"""Maps of anything by name: only where JSON, a message or a file enters or leaves the process (design 0032)."""

from __future__ import annotations

import re

from tests.architecture.source import modules

UNTYPED = re.compile(r"\b(?:dict|Mapping)\[str, Any\]")

BOUNDARIES = {
    "deploy.changes.canary": "the answer of causal upgrade --json",
    "deploy.changes.conversation": "answers of the supervisor",
    "deploy.diffing.document": "what causal diff --json prints",
    "deploy.diffing.page": "what causal diff --json prints",
    "deploy.diffing.running": "what causal diff --json prints",
    "deploy.explaining.explanation": "what performances have observed, and the explanation",
    "deploy.replaying.shown_lineage": "what causal lineage --json prints",
    "deploy.cli": "the options of a command, which are settings by name",
    "deploy.plan_command": "the options of a command, and the answer of causal plan --json",
    "deploy.hosts.host_commands": "the options of a command, which are settings by name",
    "deploy.hosts.succession": "the options of a command, which are settings by name",
    "deploy.jobs.resuming": "files of the directory of a job",
    "deploy.monitoring.querying": "the state of users' operators, which may be anything",
    "deploy.monitoring.exposed": "the options of a command, which are settings by name",
    "deploy.monitoring.placement_plan": "the answer of causal plan --json",
    "deploy.progress.report": "the file of --report",
    "deploy.recordings_command": "what --json prints",
    "deploy.savepoints.savepoint_list": "the answer of causal savepoint --list --json",
    "deploy.savepoints.savepoint_store": "savepoint.json",
    "deploy.serving.application": "requests and answers over HTTP",
    "deploy.serving.live_tasks": "the state of users' operators, which may be anything",
    "deploy.serving.questions": "answers over HTTP",
    "deploy.settings": "files of settings",
    "deploy.spark.executor": "the orders to an executor and its answers",
    "deploy.spark.options": "the options of a command, which are settings by name",
    "deploy.ui.child": "the answers of a process that reads for the page",
    "deploy.ui.drawn_graph": "an answer over HTTP",
    "deploy.ui.drawn_lineage": "what causal lineage --json prints",
    "deploy.ui.models": "an answer over HTTP",
    "deploy.ui.newest_rows": "rows, which may be anything",
    "deploy.ui.observed": "answers over HTTP, and lines of dead letters",
    "deploy.ui.output_check": "the answers of a process that reads rows",
    "deploy.ui.past": "answers over HTTP",
    "deploy.ui.recorded_axis": "an answer over HTTP",
    "deploy.ui.recording_reader": "answers over HTTP",
    "deploy.ui.row_search": "answers over HTTP",
    "deploy.ui.seen_rows": "the answers of a process that reads rows",
    "deploy.ui.terminal": "what the page shows, as it is answered over HTTP",
    "standby.blueprint": "topology.json",
    "standby.host.forks": "orders to the process that forks",
    "standby.host.forkserver": "orders to the process that forks",
    "standby.host.template": "orders to the process that forks",
    "standby.leadership.terms": "objects in the shared store",
    "standby.network.control": "control messages",
    "standby.network.description": "the description of a job, for agents",
    "standby.network.gate": "messages of other hosts",
    "standby.storage.manifests": "manifests",
    "standby.storage.recorder": "settings in the index of a recording",
    "standby.supervision.effects": "entries of the journal",
    "standby.supervision.events": "requests of clients, and answers to them",
    "standby.supervision.job_view": "status.json",
    "standby.supervision.orders": "orders to agents",
    "standby.supervision.requests": "requests of clients, and answers to them",
    "standby.supervision.savepoints": "answers to clients",
}
"""Module → what enters or leaves there."""

PACKAGES = ("deploy", "standby")


def test_maps_of_anything_are_where_json_enters_or_leaves() -> None:
    uses = {
        module.name: len(UNTYPED.findall(module.text)) for module in modules() if module.name.split(".")[0] in PACKAGES
    }
    places = {name: count for name, count in uses.items() if count}
    assert not {name: count for name, count in places.items() if name not in BOUNDARIES}
    assert not BOUNDARIES.keys() - places.keys(), "a boundary without such a map leaves the list"
