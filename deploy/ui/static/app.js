// Requests the model twice a second, and draws the view that the address selects.

import { ago, h, morph } from "./dom.js";
import { graph } from "./graph.js";
import { load as loadPast, replay } from "./replay.js";
import * as views from "./views.js";

const EVERY_MS = 500;
const SLOWLY_MS = 2000;
// A slow answer is awaited, because another request would only make it slower; after this time, it is requested again.
const AWAY_MS = 30000;
const SILENT_MS = 3000;
const AGAIN_MS_MAX = 8000;

const VIEWS = [
  ["", "Graph", graph], ["recoveries", "Recoveries", views.recoveries], ["checkpoints", "Checkpoints", views.checkpoints],
  ["state", "State", views.state], ["letters", "Dead letters", views.letters], ["replay", "Replay", replay], ["settings", "Settings", views.settings],
  ["hosts", "Hosts", views.hosts], ["break", "Break it", views.broken],
];
const GOOD = { running: "good", finished: "good", failed: "bad", down: "bad" };
const NO_ANSWER = "causal ui does not answer; try again in a moment";
const element = (id) => document.getElementById(id);

// The token follows the # of the address, a part that browsers never send; it is stored only for this tab.
let token = sessionStorage.getItem("token") ?? "";
if (location.hash.length > 1 && !location.hash.startsWith("#/") && location.hash !== "#main") {
  token = location.hash.slice(1);
  sessionStorage.setItem("token", token);
  history.replaceState(null, "", "#/");
}

let model = null;
let extra = {};
let answer = null;
let keys = null;
let drawn = "";
let letterEdges = false;

async function call(path, options = {}) {
  const abort = AbortSignal.timeout(options.within ?? AWAY_MS);
  const response = await fetch(path, { ...options, headers: { "x-causal-token": token, ...options.headers }, cache: "no-store", signal: abort });
  const content = await response.json().catch(() => ({ problem: "the dashboard is busy" }));
  if (!response.ok) throw new Refused(content.problem);
  return content;
}
class Refused extends Error {}

function notify(text) {
  element("done").textContent = text;
  element("done").hidden = false;
  clearTimeout(notify.timer);
  notify.timer = setTimeout(() => (element("done").hidden = true), 6000);
}

// Asks for confirmation before a kill; Cancel has the initial focus, so that pressing a key twice kills nothing.
function confirmed(question) {
  const dialog = element("confirm");
  element("question").textContent = question;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "kill"), { once: true }));
}

function breaks(kind, name, text) {
  const kill = async (event) => {
    if (!(await confirmed(`${text}? This is a kill -9 in the running job ${model.job}, which then recovers.`))) return;
    event.target.disabled = true;
    try {
      notify((await call("/api/break", { method: "POST", within: 30000, body: JSON.stringify({ kind, name }) })).done);
    } catch (problem) {
      notify(shown(problem).problem);
    }
    event.target.disabled = false;
  };
  return h("button", { type: "button", class: "kill", "data-key": `${kind} ${name}`, "aria-haspopup": "dialog", onclick: kill }, `${text}…`);
}

async function ask(event) {
  event.preventDefault();
  await askFor(new FormData(event.target));
}

async function askFor(fields) {
  const question = { asked: true };
  answer = question;
  draw();
  const found = await call(`/api/state?${new URLSearchParams(fields)}`, { within: 40000 }).catch(shown);
  if (answer === question) answer = found; // a later question receives its own answer
  draw();
}

async function listKeys(operator, prefix) {
  const question = { operator, prefix };
  const asked = { ...question, asked: true };
  keys = asked;
  draw();
  const listed = await call(`/api/keys?${new URLSearchParams(question)}`, { within: 40000 }).catch(shown);
  if (keys === asked) keys = { ...question, ...listed };
  draw();
}

async function copy(text) {
  await navigator.clipboard.writeText(text).then(() => notify(`Copied: ${text}`), () => notify("The browser does not allow copying; select the text instead."));
}

function toggleLetterEdges() {
  letterEdges = !letterEdges;
  look();
}

const route = () => location.hash.replace(/^#\/?/, "").split("/");

function content() {
  const [name, rest] = route();
  if (model.guarantee === undefined) return h("p", { class: "quiet" }, "There is nothing to show yet.");
  const tools = { ...extra, breaks: model.breaks ? breaks : null, ask, askFor, answer, listKeys, keys, toggleLetterEdges, route: route().slice(1).filter(Boolean), call, shown, draw, copy };
  if (name === "task") return views.task(model, decodeURIComponent(rest ?? ""), tools);
  if (name === "operator") return views.operator(model, decodeURIComponent(rest ?? ""));
  return (VIEWS.find(([path]) => path === name) ?? VIEWS[0])[2](model, tools);
}

function draw() {
  if (model === null) return;
  const [name] = route();
  document.title = `${model.job}: ${model.state}`;
  element("job").textContent = model.job;
  element("state").textContent = model.state;
  element("state").className = `badge ${GOOD[model.state] ?? "warn"}`;
  element("age").hidden = false;
  element("age").textContent = `as of ${ago(model.age_s)}`;
  element("says").textContent = model.says;
  element("says").hidden = !model.says;
  const links = VIEWS.map(([path, title]) => h("a", { href: `#/${path}`, "aria-current": path === name || (!path && ["task", "operator"].includes(name)) ? "page" : null }, title));
  morph(element("views"), h("nav", { id: "views", "aria-label": "Views" }, links));
  const fresh = h("main", { id: "main", tabindex: -1, "data-key": location.hash }, content());
  if (drawn !== location.hash) {
    element("main").replaceWith(fresh);
    drawn = location.hash;
  } else {
    morph(element("main"), fresh);
  }
}

const past = () => loadPast(call, shown, route().slice(1).filter(Boolean));

// Everything that a view needs in addition to the model.
async function more() {
  if (more.asked) return;
  const [name, rest] = route();
  more.asked = true;
  if (name === "task") extra.log = await call(`/api/log?task=${rest}`).catch(shown);
  if (name === "break" && model.breaks) call("/api/output", { within: 40000 }).catch(shown).then((output) => (extra.output = output));
  if (name === "state" && keys === null && model.operators.length && model.checkpoints?.complete) listKeys(model.operators[0], "");
  if (name === "replay") await past();
  if (name === "letters") extra.letters = await call("/api/letters").catch(shown);
  more.asked = false;
}
const shown = (problem) => ({ problem: problem instanceof Refused ? problem.message : NO_ANSWER });

// The time of the last answer, and how many requests have failed since then. The page cannot know whether causal ui is
// slow or has ended, so it only states for how long there has been no answer.
let heard = performance.now();
let failures = 0;
let next = 0;
function silence() {
  const silent = performance.now() - heard;
  if (document.hidden || silent < SILENT_MS) return;
  const since = `No answer from causal ui for ${Math.round(silent / 1000)} s`;
  const what = failures ? "if it was ended, start it again and open the address that it prints" : "the machine may be busy";
  element("problem").textContent = `${since}; it is asked again${model === null ? "" : ", and what is shown is older"}: ${what}.`;
  element("problem").hidden = false;
  if (model === null) element("main").replaceChildren(h("p", { class: "quiet" }, "Waiting for the first answer…"));
}
setInterval(silence, 1000);
document.addEventListener("visibilitychange", () => (heard = performance.now()));

let looked = -SLOWLY_MS;
async function look() {
  clearTimeout(next);
  const turn = ++look.turn;
  try {
    if (!document.hidden || model === null) {
      const fresh = await call(letterEdges ? "/api/job?letters=1" : "/api/job");
      if (turn !== look.turn) return;
      model = fresh;
      [heard, failures] = [performance.now(), 0];
      element("problem").hidden = true;
      draw();
      if (performance.now() - looked >= SLOWLY_MS) {
        looked = performance.now();
        more().then(draw);
      }
    }
  } catch (problem) {
    if (turn !== look.turn) return;
    if (problem instanceof TypeError || problem instanceof DOMException) {
      if (!(problem instanceof DOMException)) failures += 1;
      silence();
    } else {
      if (!(problem instanceof Refused)) console.error(problem);
      [heard, failures] = [performance.now(), 0];
      element("problem").textContent = problem.message;
      element("problem").hidden = false;
    }
  }
  if (turn === look.turn) next = setTimeout(look, Math.min(AGAIN_MS_MAX, EVERY_MS * 2 ** Math.min(failures, 10)));
}
look.turn = 0;

addEventListener("hashchange", () => {
  extra = {};
  looked = -SLOWLY_MS;
  draw();
  if (route()[0] === "replay") past().then(draw); // without waiting for the next turn
});
element("skip").addEventListener("click", (event) => {
  event.preventDefault();
  element("main").focus();
});
look();
