// Asks for the model twice a second, and draws the view that the address names.

import { ago, h, morph } from "./dom.js";
import { graph } from "./graph.js";
import * as views from "./views.js";

const EVERY_MS = 500;
const SLOWLY_MS = 2000;
const AWAY_MS = 8000;

const VIEWS = [
  ["", "Graph", graph], ["recoveries", "Recoveries", views.recoveries], ["checkpoints", "Checkpoints", views.checkpoints],
  ["state", "State", views.state], ["letters", "Dead letters", views.letters], ["settings", "Settings", views.settings],
  ["hosts", "Hosts", views.hosts], ["break", "Break it", views.broken],
];
const GOOD = { running: "good", finished: "good", failed: "bad", down: "bad" };
const element = (id) => document.getElementById(id);

// The token comes behind the # of the address, which is sent nowhere; it is kept for this tab alone.
let token = sessionStorage.getItem("token") ?? "";
if (location.hash.length > 1 && !location.hash.startsWith("#/") && location.hash !== "#main") {
  token = location.hash.slice(1);
  sessionStorage.setItem("token", token);
  history.replaceState(null, "", "#/");
}

let model = null;
let extra = {};
let answer = null;
let drawn = "";

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

function breaks(kind, name, text) {
  const kill = async (event) => {
    event.target.disabled = true;
    try {
      notify((await call("/api/break", { method: "POST", within: 30000, body: JSON.stringify({ kind, name }) })).done);
    } catch (problem) {
      notify(problem instanceof Refused ? problem.message : "the dashboard does not answer");
    }
    event.target.disabled = false;
  };
  return h("button", { type: "button", class: "kill", "data-key": `${kind} ${name}`, onclick: kill }, text);
}

async function ask(event) {
  event.preventDefault();
  const fields = new URLSearchParams(new FormData(event.target));
  answer = { asked: true };
  draw();
  try {
    answer = await call(`/api/state?${fields}`, { within: 40000 });
  } catch (problem) {
    answer = { problem: problem instanceof Refused ? problem.message : "the dashboard does not answer" };
  }
  draw();
}

const route = () => location.hash.replace(/^#\/?/, "").split("/");

function content() {
  const [name, rest] = route();
  if (model.guarantee === undefined) return h("p", { class: "quiet" }, "There is nothing to show yet.");
  const tools = { ...extra, breaks: model.breaks ? breaks : null, ask, answer };
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

// What a view needs besides the model.
async function more() {
  const [name, rest] = route();
  if (name === "task") extra.log = await call(`/api/log?task=${rest}`).catch(shown);
  if (name === "break" && model.breaks) call("/api/output", { within: 40000 }).catch(shown).then((output) => (extra.output = output));
  if (name === "letters") extra.letters = await call("/api/letters").catch(shown);
}
const shown = (problem) => ({ problem: problem instanceof Refused ? problem.message : "the dashboard does not answer" });

let looked = -SLOWLY_MS;
async function look() {
  try {
    if (!document.hidden || model === null) {
      model = await call("/api/job");
      if (performance.now() - looked >= SLOWLY_MS) {
        looked = performance.now();
        await more();
      }
      element("problem").hidden = true;
      draw();
    }
  } catch (problem) {
    const away = problem instanceof TypeError || problem instanceof DOMException;
    if (!away && !(problem instanceof Refused)) console.error(problem);
    element("problem").textContent = away ? "The dashboard does not answer: causal ui has ended, or the connection is broken." : problem.message;
    element("problem").hidden = false;
  }
  setTimeout(look, EVERY_MS);
}

addEventListener("hashchange", () => {
  extra = {};
  looked = -SLOWLY_MS;
  draw();
});
element("skip").addEventListener("click", (event) => {
  event.preventDefault();
  element("main").focus();
});
look();
