// The other views. Each is a function of the model and of any data that was requested in addition.

import { durations } from "./chart.js";
import { NONE, ago, bytes, count, figures, h, legend, ms, percent, rate, s, table } from "./dom.js";
import { link, tasks } from "./graph.js";

const DURATIONS_SHOWN = 100;
const PHASES = { detected: "detected", promoted: "standby promoted", collected: "determinants collected", replayed: "replayed", live: "live" };

export function task(model, name, { log, breaks }) {
  const found = model.tasks.find((each) => each.task === name);
  if (!found) return h("p", {}, `There is no task ${name}.`);
  const standbys = model.processes.filter((process) => process.standby_of === name && process.state === "idle");
  const own = model.recoveries.map((failure) => ({ ...failure, tasks: failure.tasks.filter((each) => each.task === name) })).filter((failure) => failure.tasks.length);
  return [
    h("h2", {}, `${found.task} `, h("span", { class: "quiet" }, found.operators.join(" › "))),
    figures([
      ["state", found.state], ["incarnation", found.incarnation], ["process", found.pid ? `${found.slot}, pid ${found.pid}` : NONE], ["host", found.host ?? "this one"],
      [found.unit, count(found.total)], ...speeds(found, model.present), ["backlog", bytes(found.queued_bytes)],
      ["latency p50 / p99", found.kind === "sink" ? `${ms(found.p50_ms)} / ${ms(found.p99_ms)}` : NONE],
      ["state at checkpoint", bytes(found.snapshot_bytes)], ["last snapshot", ms(found.checkpoint_ms)],
      ...(found.behind === null ? [] : [["hot standby", `${count(found.behind)} elements behind`]]),
      ["kept for replay", bytes(found.inflight_bytes)], ["determinants kept", bytes(found.log_bytes)],
      ...(found.listed ?? []).map(([title, value]) => [title, count(value)]),
    ]),
    found.doing && h("p", { class: "badge warn" }, found.doing),
    breaks && h("p", {}, breaks("task", name, `Kill ${name}`), " ", standbys.map((process) => [breaks("standby", process.slot, `Kill its standby ${process.slot}`), " "])),
    found.hot_keys.length > 0 && [
      h("h2", {}, "Keys by share of the task's time, sampled"),
      table("Hottest keys", [["key", ([key]) => key, "wrap"], ["share", ([, share]) => percent(share), "num"]], found.hot_keys),
    ],
    h("h2", {}, "Its recoveries"), own.length ? own.slice(0, 5).map(failure) : h("p", { class: "quiet" }, "It has never failed."),
    h("h2", {}, "Determinants logged"),
    table("Determinants", [["kind", ([kind]) => kind], ["bytes", ([, size]) => count(size), "num"]], Object.entries(found.determinant_bytes), "None."),
    h("h2", {}, "Log"), lines(log),
  ];
}

// Describes the work of a task: its present work or, if the job is not running, its average.
function speeds(found, present) {
  const parts = (shares, when) => [[`busy${when}`, percent(shares?.busy)], [`blocked${when}`, percent(shares?.blocked)]];
  if (present) return [[`${found.unit}/s`, rate(found.rate)], ["sent", bytes(found.bytes_rate, "/s")], ...parts(found.shares, "")];
  return [[`${found.unit}/s on average`, rate(found.average_rate)], ...parts(found.average_shares, " on average")];
}

export function operator(model, name) {
  const node = model.graph.nodes.find((each) => each.name === name);
  if (!node) return h("p", {}, `There is no operator ${name}.`);
  return [h("h2", {}, `${node.title} `, h("span", { class: "quiet" }, node.operators.join(" › "))), tasks(model, model.tasks.filter((each) => node.tasks.includes(each.task)))];
}

function lines(log) {
  if (!log) return h("p", { class: "quiet" }, "Reading…");
  if (log.problem) return h("p", { class: "badge bad" }, log.problem);
  return log.lines.length ? h("div", { class: "scroll" }, h("pre", { tabindex: 0, "aria-label": "Log" }, log.lines.join("\n"))) : h("p", { class: "quiet" }, "It has printed and logged nothing.");
}

function failure(each) {
  const [width, left, row] = [760, 150, 24];
  const end = Math.max(1, each.took_ms);
  const x = (at) => left + ((width - left - 90) * at) / end;
  const height = each.tasks.length * row + 22;
  const head = `${each.tasks.map((one) => one.task).join(", ")}: ${each.live ? `live again after ${ms(each.took_ms)}` : "not live again yet"}`;
  return h("section", { class: "failure" },
    h("h3", {}, head, h("span", { class: "quiet" }, `  ${each.at_s === null ? "" : `at ${each.at_s.toFixed(1)} s, `}${ago(each.ago_s)}`)),
    s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `Timeline: ${head}` },
      each.tasks.map((one, place) => s("g", { transform: `translate(0 ${place * row})` },
        s("text", { x: 0, y: 15 }, one.task.length > 20 ? `${one.task.slice(0, 19)}…` : one.task),
        s("line", { class: "axis", x1: left, x2: x(end), y1: 20, y2: 20 }),
        one.phases.map((phase) => s("rect", { class: phase.phase, x: x(one.offset_ms + phase.from_ms), y: 4, width: Math.max(1, x(phase.to_ms) - x(phase.from_ms)), height: 15 },
          s("title", {}, `${PHASES[phase.phase]}: ${ms(phase.from_ms)} to ${ms(phase.to_ms)}`))),
        one.first_output_ms !== null && s("path", { class: "mark", d: `M${x(one.offset_ms + one.first_output_ms) - 4} 0h8l-3.3 5v15h-1.4v-15z` }, s("title", {}, `first output: ${ms(one.first_output_ms)}`)),
        one.live && s("text", { class: "quiet", x: x(one.offset_ms + one.phases.at(-1).to_ms) + 8, y: 15 }, ms(one.phases.at(-1).to_ms)))),
      s("text", { class: "quiet", x: left, y: height - 6 }, "0"), s("text", { class: "quiet", x: x(end), y: height - 6, "text-anchor": "end" }, ms(end))),
    h("ul", {}, each.tasks.map((one) => h("li", {}, `${one.task} (${one.mode}): ${one.why}. `,
      one.phases.map((phase) => `${PHASES[phase.phase]} ${ms(phase.to_ms)}`).join(", "), one.first_output_ms === null ? "" : `, first output ${ms(one.first_output_ms)}`,
      one.replayed === null ? "" : `; ${count(one.replayed)} elements replayed`, one.withdrawn ? `; ${count(one.withdrawn)} rows withdrawn` : "", "."))),
    each.others > 0 && h("p", { class: "quiet" }, `Meanwhile ${count(each.others)} other ${each.others === 1 ? "task" : "tasks"} worked on`,
      each.before_rps === null || each.lowest_rps === null ? "." : `; the job wrote ${rate(each.before_rps, " rows/s")} in the 5 s before, and at least ${rate(each.lowest_rps, " rows/s")} meanwhile, each the mean of two seconds.`));
}

export function recoveries(model) {
  return [
    h("h2", {}, "Recoveries"),
    legend(Object.entries(PHASES).concat([["mark", "first output"]])),
    model.recoveries.length ? model.recoveries.map(failure) : h("p", { class: "quiet" }, "No process of a task has died."),
    model.recoveries_earlier > 0 && h("p", { class: "quiet" }, `${count(model.recoveries_earlier)} earlier recoveries: causal status --json`),
    model.host_losses.length > 0 && [h("h2", {}, "Hosts lost"), losses(model)],
  ];
}

const losses = (model) => table("Hosts lost", [
  ["host", (loss) => loss.host], ["why", (loss) => loss.why, "wrap"], ["noticed after", (loss) => ms(loss.lost_ms), "num"],
  ["tasks", (loss) => loss.tasks.join(", "), "wrap"], ["all live after", (loss) => ms(loss.recovered_ms), "num"],
], [...model.host_losses].reverse());

export function checkpoints(model) {
  const all = model.checkpoints;
  return [
    figures([["complete", count(all.count)], ["last epoch", count(all.complete)], ["interval", `${all.interval_s} s`], ["last", ms(all.took_ms.at(-1))], ["slowest of these", ms(Math.max(...all.took_ms, 0))], ["size", bytes(all.bytes)]]),
    all.under_way && h("p", {}, `Checkpoint ${all.under_way} has been under way for ${all.for_s ?? 0} s; it waits for ${all.waits_for.join(", ") || "its manifest"}.`),
    h("h2", {}, "Durations"),
    all.took_ms.length ? durations(all.took_ms, Math.max(DURATIONS_SHOWN, all.took_ms.length)) : h("p", { class: "quiet" }, "None is complete."),
    h("h2", {}, "By task, the slowest first"),
    table("Checkpoints by task", [["task", (each) => h("a", { href: link(each.task) }, each.task)], ["state size", (each) => bytes(each.snapshot_bytes), "num"], ["last snapshot", (each) => ms(each.checkpoint_ms), "num"], ["", (each) => (each.awaited ? "awaited" : "")]], all.tasks),
  ];
}

export function letters(model, { letters: answer }) {
  if (!answer) return h("p", { class: "quiet" }, "Reading…");
  if (answer.problem) return h("p", { class: "badge bad" }, answer.problem);
  return [
    h("p", { class: "quiet" }, `Records on which user code raised, and rows that a store refused: ${answer.where}.`),
    table("Dead letters", [
      ["operator", (letter) => letter.operator], ["key", (letter) => letter.key ?? NONE, "wrap"], ["position", (letter) => count(letter.position), "num"],
      ["error", (letter) => [h("div", {}, letter.error), h("div", { class: "quiet" }, letter.where), letter.traceback && h("details", {}, h("summary", {}, "traceback"), h("pre", {}, letter.traceback))], "wrap"],
      ["record", (letter) => letter.record, "wrap"],
      ["replay", (letter) => (letter.row ? h("a", { href: `#/replay/all/row/${encodeURIComponent(letter.row.account)}/${letter.row.position}` }, "how it came") : NONE)],
    ], answer.letters, "No dead letters."),
  ];
}

export function settings(model) {
  const shown = (value) => (typeof value === "string" ? value || NONE : JSON.stringify(value));
  const rows = [...model.settings].sort((one, other) => other.changed - one.changed);
  return [
    model.edited.length > 0 && h("p", { class: "badge warn" }, `changed since the start: ${model.edited.join(", ")} (the job keeps the code it was started with)`),
    h("p", { class: "quiet" }, "Bold: not the default. What each one means: docs/operations.md."),
    table("Settings", [["setting", (each) => h("span", { class: each.changed ? "changed" : null }, each.name)], ["value", (each) => shown(each.value), "wrap"]], rows),
  ];
}

export function hosts(model) {
  if (!model.hosts.length) return h("p", { class: "quiet" }, "The job runs only on this machine; causal run --listen runs one on several hosts.");
  return [
    table("Hosts", [
      ["host", (host) => host.host], ["state", (host) => h("span", { class: `badge ${host.state === "lost" ? "bad" : "good"}` }, host.state)], ["zone", (host) => host.zone ?? NONE],
      ["tasks", (host) => host.tasks.map((name) => [h("a", { href: link(name) }, name), " "]), "wrap"], ["standbys of", (host) => host.standbys.join(", ") || NONE, "wrap"],
      ["slots", (host) => host.slots, "num"], ["heard", (host) => (host.last_heard_ms === null ? NONE : `${ms(host.last_heard_ms)} ago`), "num"], ["clock", (host) => (host.clock_error_ms === null ? NONE : `± ${host.clock_error_ms.toFixed(2)} ms`), "num"], ["version", (host) => host.version ?? NONE],
    ], model.hosts),
    h("h2", {}, "Lost"), losses(model),
  ];
}

// The button that kills the agent of a host in a multi-host job; if this is not possible, it states the reason.
function agentOf(host, breaks) {
  const why = host.state === "lost" ? "lost" : { true: "", false: "started with --no-break" }[host.breakable] ?? "of an older version";
  return why === "" ? breaks("agent", host.host, `Kill the agent of ${host.host}`) : h("button", { type: "button", disabled: true }, `Agent of ${host.host}: ${why}`);
}

export function broken(model, { breaks, output }) {
  if (!breaks) return h("p", {}, model.present ? "This dashboard was started with --no-break: it cannot kill anything." : "The job does not run, so there is nothing to break.");
  const idle = model.processes.filter((process) => process.state === "idle");
  const agents = model.hosts.length ? model.hosts.map((host) => [agentOf(host, breaks), " "]) : breaks("agent", "", "Kill the agent");
  return [
    h("p", {}, "Each button is a kill -9. No row is lost or doubled by it: that is what the guarantee says, and the recovery appears below within moments."),
    h("h2", {}, "Tasks"), h("p", {}, model.tasks.filter((each) => each.pid).map((each) => [breaks("task", each.task, `Kill ${each.task}`), " "])),
    h("h2", {}, "Standbys"), idle.length ? h("p", {}, idle.map((process) => [breaks("standby", process.slot, `Kill ${process.slot}${process.standby_of ? `, standby of ${process.standby_of}` : ""}`), " "])) : h("p", { class: "quiet" }, "No standby waits at the moment."),
    h("h2", {}, "Servers"), h("p", {}, breaks("supervisor", "", "Kill the supervisor"), " ", agents),
    h("p", { class: "quiet" }, "Tasks work on while the supervisor or an agent is dead; the next agent adopts the processes of the one before."),
    output?.problem && h("p", { class: "badge warn" }, output.problem),
    output?.says && h("p", { id: "output", role: "status", class: { true: "held", false: "problem" }[output.holds] ?? "quiet" }, output.says),
    h("h2", {}, "The last failures"), model.recoveries.length ? model.recoveries.slice(0, 3).map(failure) : h("p", { class: "quiet" }, "None yet."),
  ];
}

// The keys that begin with the entered text, as buttons that each look up one key.
function listed(keys, askFor) {
  if (!keys) return null;
  if (keys.asked) return h("p", { class: "quiet" }, "Reading the keys…");
  if (keys.problem) return h("p", { class: "badge bad" }, keys.problem);
  const begin = keys.prefix ? ` that begin with ${keys.prefix}` : "";
  const more = keys.count - keys.keys.length;
  return [
    h("h2", {}, `Keys of ${keys.operator} `, h("span", { class: "quiet" }, `as of checkpoint ${keys.epoch}: ${count(keys.count)}${keys.complete ? "" : " or more"}${begin}`)),
    keys.keys.length > 0 && h("p", { class: "keys" }, keys.keys.map((key) => [
      h("button", { type: "button", "data-key": `${keys.operator} ${key}`, onclick: () => askFor({ operator: keys.operator, key, live: "" }) }, key), " "])),
    more > 0 && h("p", { class: "quiet" }, `And ${count(more)} more: type how they begin.`),
    !keys.complete && h("p", { class: "quiet" }, "The state is large: only some of its key groups were searched."),
  ];
}

export function state(model, { ask, askFor, answer, listKeys, keys }) {
  const list = (event) => {
    const fields = new FormData(event.target.form);
    listKeys(fields.get("operator"), fields.get("key"));
  };
  return [
    h("form", { "data-key": model.operators.join(" "), onsubmit: ask },
      h("label", {}, "operator", h("select", { name: "operator", onchange: (event) => listKeys(event.target.value, "") }, model.operators.map((name) => h("option", {}, name)))),
      h("label", {}, "key, or how keys begin", h("input", { name: "key", placeholder: "Ada, 7 or [\"a\", 1]", maxlength: 1000, autocomplete: "off" })),
      h("label", {}, "as of", h("select", { name: "live" }, h("option", { value: "" }, "the last checkpoint"), h("option", { value: "1", disabled: !model.present }, "now"))),
      h("button", {}, "Show the key"), h("button", { type: "button", onclick: list }, "List keys")),
    answer?.problem && h("p", { class: "badge bad" }, answer.problem),
    answer?.asked && h("p", { class: "quiet" }, "Reading…"),
    answer?.hint && h("p", { class: "badge warn" }, answer.hint),
    answer?.tasks && !answer.live && model.state === "finished" && h("p", { class: "quiet" }, "The job has finished since: what it performed after that checkpoint is not in this state."),
    answer?.tasks?.map((each) => [
      h("h2", {}, `${answer.operator}, key ${answer.key} `, h("span", { class: "quiet" }, `${each.task}, ${each.incarnation === undefined ? `as of checkpoint ${each.epoch}` : `in epoch ${each.epoch}, incarnation ${each.incarnation}`}`)),
      table("State", [["table", ([name]) => name], ["value", ([, value]) => value, "wrap"]], Object.entries(each.state), "Nothing is kept for this key."),
    ]),
    listed(keys, askFor),
  ];
}
