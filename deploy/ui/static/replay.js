// The page Replay: a time axis of the recording, and what a selected epoch, failure or row holds. The address has the
// interval of the axis and the selection, as in #/replay/1795837337-1795837398/epoch/41.

import { drawing as lineageOf, explanation, nodeDetails } from "./lineage.js";
import { bytes, count, figures, h, ms, s, table } from "./dom.js";

const AGAIN_MS = 10000;
const [HEIGHT, MARKS, BARS, TICKS, BAND] = [132, 16, 74, 100, 112];
const VERSIONS_LISTED = 8;
const LABEL_PERCENT = 4;
const PIXEL_PERCENT = 0.12;

const place = (interval, ...selection) => ["#/replay", interval, ...selection.map((each) => encodeURIComponent(each))].join("/");
const between = (since, until) => `${since.toFixed(3)}-${until.toFixed(3)}`;

// Times are shown in the zone of the browser; fractions of a second only where the interval is short.
const TIME = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
const clock = (at, fraction = false) => new Date(at * 1000).toLocaleTimeString("en-GB", fraction ? { ...TIME, fractionalSecondDigits: 3 } : TIME);
const day = (at) => new Date(at * 1000).toLocaleDateString("en-CA");
const moment = (at) => `${day(at)} ${clock(at, true)}`;
const lasting = (seconds) => (seconds < 10 ? ms(seconds * 1000) : seconds < 5400 ? `${count(seconds)} s` : `${(seconds / 3600).toFixed(1)} h`);

// What is known, by the question; the address decides which questions there are.
let axis = { interval: null, at: -AGAIN_MS };
let selected = { name: null };
let rows = null;
let origin = { row: null };
let now = { row: null };

const nameOf = (kind, of) => JSON.stringify([kind, kind === "row" ? of.slice(0, 2) : of]);

export async function load(call, shown, [interval = "all", kind, ...of]) {
  const [since, until] = interval === "all" ? ["", ""] : bounds(interval);
  if (axis.interval !== interval || performance.now() - axis.at >= AGAIN_MS) {
    const answer = await call(`/api/recorded?${new URLSearchParams({ since, until })}`).catch(shown);
    axis = { interval, at: performance.now(), answer };
  }
  const name = kind === undefined ? null : nameOf(kind, of);
  const [first = "", second = ""] = of.map(decoded);
  if (kind === "row" && (origin.row !== `${first}:${second}` || ["searching", "busy"].includes(origin.state))) {
    const known = await call(`/api/recorded/origin?${new URLSearchParams({ account: first, position: second })}`).catch(shown);
    origin = { ...(known.problem ? { state: "idle" } : known), row: `${first}:${second}` };
  }
  if (selected.name === name) return;
  const question = { epoch: { epoch: first }, failure: { epoch: first, task: second }, row: { account: first, position: second } }[kind];
  selected = { name, kind, of: [first, second], answer: question && (await call(`/api/recorded/${kind}?${new URLSearchParams(question)}`).catch(shown)) };
}

// The positions of a minus within the numbers do not matter, because times are after 1970.
const bounds = (interval) => [...interval.split("-"), ""].slice(0, 2);

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

async function findRows(event, { call, shown, draw }) {
  event.preventDefault();
  const question = Object.fromEntries(new FormData(event.target));
  const asked = { ...question, asked: true, sinks: rows?.sinks };
  rows = asked;
  draw();
  const answer = await call(`/api/rows?${new URLSearchParams(question)}`, { within: 40000 }).catch(shown);
  if (rows === asked) rows = { ...question, sinks: asked.sinks, ...answer };
  draw();
}

export function replay(model, tools) {
  const [interval = "all", kind, ...of] = tools.route;
  const answer = axis.interval === interval || axis.answer?.none ? axis.answer : undefined;
  if (!answer) return h("p", { class: "quiet" }, "Reading the recording…");
  if (answer.none) return h("p", {}, answer.none);
  if (answer.problem) return [h("p", { class: "badge bad" }, answer.problem), interval !== "all" && h("p", {}, h("a", { href: "#/replay" }, "Show the whole recording"))];
  if (!answer.epochs) return h("p", { class: "quiet" }, "Nothing is recorded yet: the first epoch appears after the next checkpoint.");
  return [
    figures([["window", answer.window === "off" ? "records no longer" : answer.window], ["recorded", lasting(answer.whole[1] - answer.whole[0])], ["epochs shown", `${count(answer.first)} to ${count(answer.last)}`], ["size", bytes(answer.bytes)], ["failures shown", count(answer.failed.length + answer.earlier_failures)]]),
    drawing(answer, interval, kind, of),
    controls(answer, interval),
    changes(answer, interval),
    details(model, interval, kind, of, tools),
    kind === undefined && failures(answer, interval),
    kind === undefined && finding(interval, tools),
  ];
}

// The axis.

function drawing(axis, interval, kind, of) {
  const [since, until] = [axis.since_s, axis.until_s];
  const percent = (at) => Math.min(100, Math.max(0, (100 * (at - since)) / (until - since)));
  const x = (at) => `${percent(at).toFixed(3)}%`;
  const width = (from, to) => `${Math.max(PIXEL_PERCENT, percent(to) - percent(from)).toFixed(3)}%`;
  const speed = (bar) => bar.bytes / Math.max(1e-3, bar.until_s - bar.since_s);
  const highest = Math.max(1, ...axis.bars.map(speed));
  const chosen = kind === "epoch" ? Number(of[0]) : kind === "failure" ? Number(of[0]) : null;
  const fine = until - since < 20;
  const labels = [0, 0.25, 0.5, 0.75, 1].map((part) => since + part * (until - since));
  return h("figure", { class: "past" },
    h("div", { class: "unit quiet" }, `${day(since)}${day(until) === day(since) ? "" : ` to ${day(until)}`}; height: determinants logged, at most ${bytes(highest, "/s")}`),
    s("svg", { class: "axis-of-time", width: "100%", height: HEIGHT, role: "group", "aria-label": "Time axis of the recording; arrow keys go from bar to bar", onkeydown: step },
      axis.versions.map((each) => [
        each.begins && s("line", { class: "begins", x1: x(each.since_s), x2: x(each.since_s), y1: 0, y2: HEIGHT }, s("title", {}, each.change)),
        s("rect", { class: each.version % 2 ? "odd" : "even", x: x(each.since_s), y: BAND, width: width(each.since_s, each.until_s), height: HEIGHT - BAND }, s("title", {}, versionOf(each))),
        percent(each.until_s) - percent(each.since_s) > LABEL_PERCENT && s("svg", { x: x(each.since_s), y: BAND, overflow: "visible" }, s("text", { class: "quiet", x: 5, y: 14 }, `version ${each.version}`)),
      ]),
      axis.bars.map((bar, at) => barOf(bar, at, interval, x, width, (BARS * speed(bar)) / highest, chosen)),
      axis.bars.filter((bar) => bar.kept).map((bar) => s("rect", { class: "kept", x: x(bar.since_s), y: TICKS, width: 1.5, height: 7 }, s("title", {}, bar.kept === 1 ? `checkpoint ${bar.first} is kept` : `${count(bar.kept)} checkpoints are kept`))),
      axis.bars.filter((bar) => bar.failures).map((bar) => failureMark(bar, axis, interval, x)),
      s("line", { class: "axis", x1: 0, x2: "100%", y1: MARKS + BARS + 4, y2: MARKS + BARS + 4 })),
    h("div", { class: "along quiet", "aria-hidden": "true" }, labels.map((at) => h("span", {}, clock(at, fine)))),
    h("ul", { class: "legend" },
      sign(s("rect", { class: "busy", width: 10, height: 10 }), axis.bars.length < axis.epochs ? "several epochs: follow the bar" : "an epoch"),
      sign(s("rect", { class: "kept", x: 4, width: 2, height: 10 }), "kept checkpoint: a replay begins there"),
      sign(s("path", { class: "failed", d: "M5 0l5 5-5 5-5-5z" }), "failure"), sign(s("line", { class: "begins", x1: 5, x2: 5, y1: 0, y2: 10 }), "a version begins, or a gap ends")));
}

const sign = (drawn, text) => h("li", {}, s("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, drawn), text);
const versionOf = (each) => `version ${each.version}: epochs ${count(each.first)} to ${count(each.last)}, from ${moment(each.since_s)}; ${each.change}`;

function barOf(bar, at, interval, x, width, height, chosen) {
  const one = bar.first === bar.last;
  const what = one ? `epoch ${count(bar.first)}` : `epochs ${count(bar.first)} to ${count(bar.last)}`;
  const title = `${what}, ${clock(bar.since_s, true)} to ${clock(bar.until_s, true)}, ${bytes(bar.bytes)} of determinants${bar.failures ? `, failures: ${bar.failed.join(", ")}` : ""}`;
  const current = one && bar.first === chosen;
  const tall = Math.max(1.5, height);
  return s("a", { class: "bar", href: one ? place(interval, "epoch", bar.first) : place(between(bar.since_s, bar.until_s)), "aria-label": title, "aria-current": current ? "true" : null, tabindex: at ? -1 : 0 },
    s("title", {}, title),
    s("rect", { class: "reach", x: x(bar.since_s), y: MARKS, width: width(bar.since_s, bar.until_s), height: BARS + 4 }),
    s("rect", { class: current ? "busy chosen" : "busy", x: x(bar.since_s), y: (MARKS + BARS + 4 - tall).toFixed(1), width: width(bar.since_s, bar.until_s), height: tall.toFixed(1) }));
}

function failureMark(bar, axis, interval, x) {
  const [alone] = bar.failures === 1 ? axis.failed.filter((each) => each.epoch >= bar.first && each.epoch <= bar.last) : [];
  const title = `${bar.failures === 1 ? "failure" : `${count(bar.failures)} failures`} of ${bar.failed.join(", ")}`;
  const href = alone ? place(interval, "failure", alone.epoch, alone.task) : place(between(bar.since_s, bar.until_s));
  return s("a", { href, "aria-label": title, tabindex: -1 }, s("title", {}, title),
    s("svg", { x: x(alone ? alone.at_s : (bar.since_s + bar.until_s) / 2), overflow: "visible" },
      s("path", { class: "failed", d: "M0 1l6 6-6 6-6-6z" }), bar.failures > 1 && s("text", { class: "quiet", x: 8, y: 11 }, count(bar.failures))));
}

// The axis is one stop of the Tab key; the arrow keys lead from bar to bar, and from a bar to the mark above it.
function step(event) {
  const bars = [...event.currentTarget.querySelectorAll("a.bar")];
  const at = bars.indexOf(document.activeElement);
  const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: bars.length - 1 }[event.key];
  if (at < 0 || next === undefined) return;
  event.preventDefault();
  bars[Math.min(bars.length - 1, Math.max(0, next))].focus();
}

function controls(axis, interval) {
  const [since, until] = [axis.since_s, axis.until_s];
  const [whole, end] = axis.whole;
  const half = (until - since) / 2;
  const moved = (from, to) => place(between(Math.max(whole, from), Math.min(end, to)));
  const link = (text, href, sensible) => (sensible ? h("a", { href }, text) : h("span", { class: "quiet" }, text));
  const go = (event) => {
    event.preventDefault();
    const text = new FormData(event.target).get("place").trim();
    const at = /^\d+$/.test(text) ? null : timeOf(text, end);
    if (/^\d+$/.test(text)) location.hash = place(interval, "epoch", text);
    else if (at !== null) location.hash = moved(at - 30, at + 30);
    else event.target.elements.place.setCustomValidity("an epoch such as 120, or a time such as 14:03 or 14:03:10");
    event.target.reportValidity();
  };
  return h("form", { class: "past-controls", onsubmit: go },
    h("label", {}, "epoch, or time", h("input", { name: "place", placeholder: "120 or 14:03:10", maxlength: 30, autocomplete: "off", oninput: (event) => event.target.setCustomValidity("") })),
    h("button", {}, "Show"),
    h("span", { class: "steps" },
      link("Earlier", moved(since - half, until - half), since > whole), " ", link("Later", moved(since + half, until + half), until < end), " ",
      link("Zoom in", moved(since + half / 2, until - half / 2), axis.epochs > 2), " ", link("Zoom out", moved(since - half, until + half), since > whole || until < end), " ",
      link("All", "#/replay", interval !== "all")));
}

// Returns the last moment with this time of day before the end of the recording, in seconds since 1970; null if the text is no time.
function timeOf(text, end) {
  const match = /^(\d{1,2}):(\d{2})(?::(\d{2}))?$/.exec(text);
  if (!match) return null;
  const [hours, minutes, seconds] = [match[1], match[2], match[3] ?? 0].map(Number);
  if (hours > 23 || minutes > 59 || seconds > 59) return null;
  const at = new Date(end * 1000);
  at.setHours(hours, minutes, seconds, 0);
  if (at.getTime() / 1000 > end) at.setDate(at.getDate() - 1);
  return at.getTime() / 1000;
}

function changes(axis, interval) {
  const begun = axis.versions.filter((each) => each.begins);
  if (!begun.length) return null;
  return h("ul", { class: "changes" }, begun.slice(-VERSIONS_LISTED).map((each) =>
    h("li", {}, h("a", { href: place(interval, "epoch", each.first) }, `version ${each.version}`), ` from ${moment(each.since_s)}, epoch ${count(each.first)}: ${each.change}`)),
    begun.length > VERSIONS_LISTED && h("li", { class: "quiet" }, `and ${begun.length - VERSIONS_LISTED} earlier`));
}

function failures(axis, interval) {
  return [
    h("h2", {}, "Failures"),
    table("Failures", [
      ["time", (each) => h("a", { href: place(interval, "failure", each.epoch, each.task) }, moment(each.at_s))],
      ["task", (each) => each.task, "wrap"], ["epoch", (each) => count(each.epoch), "num"], ["recovery", (each) => each.mode], ["why", (each) => each.why, "wrap"],
    ], axis.failed, "No task died in this time."),
    axis.earlier_failures > 0 && h("p", { class: "quiet" }, `And ${count(axis.earlier_failures)} earlier: zoom in.`),
  ];
}

// What is selected.

function details(model, interval, kind, of, tools) {
  if (kind === undefined) return null;
  const back = h("p", {}, h("a", { href: place(interval) }, "Close"));
  if (selected.name !== nameOf(kind, of)) return h("p", { class: "quiet" }, "Reading…");
  const { answer } = selected;
  if (!answer || answer.problem) return [h("p", { class: "badge bad" }, answer?.problem ?? `There is nothing called ${kind}.`), back];
  return [{ epoch, failure, row }[kind](answer, interval, tools, of), back];
}

function epoch(shown, interval, tools) {
  return [
    h("h2", {}, `Epoch ${count(shown.epoch)} `, h("span", { class: "quiet" }, `${moment(shown.since_s)} to ${clock(shown.until_s, true)}`)),
    figures([["version", shown.version], ["code", shown.code || "–"], ["determinants", bytes(shown.bytes)], ["tasks", count(shown.tasks.length + shown.tasks_left_out)], ["a replay begins at", `checkpoint ${count(shown.start)}`]]),
    h("p", {}, shown.before !== null && [h("a", { href: place(interval, "epoch", shown.before) }, "Epoch before"), " "], shown.after !== null && h("a", { href: place(interval, "epoch", shown.after) }, "Epoch after")),
    shown.failures.length > 0 && h("p", {}, "Detected in it: ", shown.failures.map((each) => [h("a", { href: place(interval, "failure", shown.epoch, each.task) }, `failure of ${each.task}`), " "])),
    commands(shown.commands, tools),
    table("Logs by task", [["task", (each) => each.task, "wrap"], ["incarnation", (each) => each.incarnation, "num"], ["determinants", (each) => bytes(each.bytes), "num"]], shown.tasks),
    shown.tasks_left_out > 0 && h("p", { class: "quiet" }, `And ${count(shown.tasks_left_out)} more.`),
    shown.settings.length > 0 && h("details", {}, h("summary", {}, "Settings of this version that are no defaults"),
      table("Settings of the version", [["setting", (each) => each.name], ["value", (each) => (typeof each.value === "string" ? each.value : JSON.stringify(each.value)), "wrap"]], shown.settings)),
  ];
}

function failure(shown, interval, tools) {
  return [
    h("h2", {}, `Failure of ${shown.task} `, h("span", { class: "quiet" }, moment(shown.at_s))),
    figures([["died in epoch", count(shown.epoch)], ["after", `${bytes(shown.log_bytes)} of its log`], ["recovery", shown.mode], ["next incarnation", shown.incarnation], ["elements replayed", count(shown.replayed)]]),
    h("p", {}, `Why: ${shown.why}.`),
    h("p", {}, h("a", { href: place(interval, "epoch", shown.epoch) }, `Epoch ${count(shown.epoch)}`)),
    commands(shown.commands, tools),
  ];
}

function row(shown, interval, tools, of) {
  const name = selected.of.join(":");
  return [h("h2", {}, `Row ${name}`), commands(shown.commands, tools), origin.row === name && searched(interval, tools, of)];
}

// The search for the origin of a row: it is one at a time for all tabs, and is asked for its progress until it ends.
async function search(kind, { call, shown, draw }) {
  const row = selected.of.join(":");
  const ask = (path, options) => call(path, options).catch((problem) => ({ state: "failed", ...shown(problem) }));
  origin = { row, ...(await ask("/api/recorded/search", { method: "POST", body: JSON.stringify({ kind, name: row }) })), row };
  draw();
  while (origin.row === row && origin.state === "searching") {
    await new Promise((resolve) => setTimeout(resolve, 500));
    const known = await ask(`/api/recorded/origin?${new URLSearchParams({ account: selected.of[0], position: selected.of[1] })}`);
    if (origin.row === row && selected.of.join(":") === row) origin = { ...known, row };
    draw();
  }
}

function searched(interval, tools, of) {
  const button = (text, kind) => h("button", { type: "button", "data-key": text, onclick: () => search(kind, tools) }, text);
  if (origin.state === "searching") return h("p", { role: "status" }, `The recording is performed again, up to this row, for ${count(origin.for_s)} s. `, button("Cancel", "cancel"));
  if (origin.state === "busy") return h("p", { role: "status" }, `Another row is being looked up. `, button("Cancel that search", "cancel"));
  if (origin.state === "found") return foundOrigin(origin.lineage, interval, tools, of);
  return [
    origin.problem && h("p", { class: "badge bad" }, origin.problem),
    h("p", {}, button("Find out what it comes from", "search")),
    h("p", { class: "quiet" }, "A part of the recording is performed again in a process of its own. The job, its stores and the outside are not touched."),
  ];
}

function foundOrigin(lineage, interval, tools, of) {
  const chosen = of[2] === undefined ? null : decoded(of[2]);
  const to = (id) => place(interval, "row", ...selected.of, id);
  const ask = async () => {
    const row = origin.row;
    now = { row, asked: true };
    tools.draw();
    now = { row, ...(await tools.call(`/api/state?${new URLSearchParams({ ...lineage.key, live: "" })}`, { within: 40000 }).catch(tools.shown)) };
    tools.draw();
  };
  const then = [h("h2", {}, "Then"), h("div", { class: "scroll" }, h("pre", { tabindex: 0, "aria-label": "The record that caused the row, and the state before and after it" }, origin.then))];
  return [
    explanation(lineage),
    lineageOf(lineage, chosen, to),
    h("ul", { class: "legend" },
      sign(s("rect", { class: "node bounded", width: 10, height: 10, rx: 2 }), "≤ an upper bound: it may have had no part in the row"), sign(s("path", { class: "way became", d: "M0 5h10" }), "became"), sign(s("path", { class: "way earlier", d: "M0 5h10" }), "came earlier for the same key")),
    chosen ? nodeDetails(lineage, chosen) : h("p", { class: "quiet" }, "Follow a box to see all of it, and what led there."),
    then,
    lineage.key && [
      h("h2", {}, "Now ", h("span", { class: "quiet" }, `the state of key ${lineage.key.key} in ${lineage.key.operator}, at the last checkpoint`)),
      now.row !== origin.row ? h("p", {}, h("button", { type: "button", onclick: ask }, "Show it")) : now.asked ? h("p", { class: "quiet" }, "Reading…") : now.problem ? h("p", { class: "badge bad" }, now.problem)
        : now.tasks.map((each) => table("State now", [["table", ([name]) => name], ["value", ([, value]) => value, "wrap"]], Object.entries(each.state), "Nothing is kept for this key.")),
    ],
  ];
}

function commands(all, { copy }) {
  return h("dl", { class: "commands" }, all.map((each) => h("div", {},
    h("dt", {}, each.for), h("dd", {}, h("code", {}, each.command), " ", h("button", { type: "button", "data-key": each.command, "aria-label": `Copy: ${each.for}`, onclick: () => copy(each.command) }, "Copy")))));
}

function finding(interval, tools) {
  const sinks = rows?.sinks ?? [];
  return [
    h("h2", {}, "Where does a row come from?"),
    h("form", { "data-key": sinks.join("\n"), onsubmit: (event) => findRows(event, tools) },
      sinks.length > 1 && h("label", {}, "sink", h("select", { name: "sink" }, sinks.map((name) => h("option", { selected: name === rows?.sink }, name)))),
      h("label", {}, "rows that contain", h("input", { name: "text", maxlength: 200, autocomplete: "off", placeholder: "any text, or nothing" })),
      h("button", {}, "Show the newest rows")),
    found(interval),
  ];
}

function found(interval) {
  if (!rows) return null;
  if (rows.asked) return h("p", { class: "quiet" }, "Reading the rows…");
  if (rows.problem) return h("p", { class: "badge bad" }, rows.problem);
  return [
    table("Rows", [
      ["row", (each) => h("a", { href: place(interval, "row", each.account, each.position) }, `${each.account}:${each.position}`)], ["record", (each) => each.row, "wrap"],
    ], rows.rows, rows.text ? `None of the newest ${count(rows.searched)} rows contains that.` : "There are no rows."),
    rows.rows.length > 0 && rows.text && !rows.complete && h("p", { class: "quiet" }, `The newest ${count(rows.searched)} rows were searched.`),
  ];
}
