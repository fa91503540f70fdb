// The graph: a box for each operator, with a bar for each of its tasks, and edges whose width shows bytes per second.

import { flow } from "./chart.js";
import { bytes, count, figures, h, legend, ms, percent, rate, s, table } from "./dom.js";

const [WIDTH, GAP_X, GAP_Y, HEAD, BAR, PAD, WAY] = [186, 64, 24, 46, 16, 10, 14];
const BARS_MAX = 12;
const TITLE_MAX = 21;

export const link = (task) => `#/task/${encodeURIComponent(task)}`;

// For a job that is not running, there are only averages, and they are labelled as such.
const shares = (task) => task.shares ?? task.average_shares;
const speed = (thing) => (thing.rate === null ? (thing.average_rate === null ? null : `${rate(thing.average_rate)} on average`) : rate(thing.rate, ` ${thing.unit}/s`));

function share(task) {
  const known = shares(task);
  return known ? `busy ${percent(known.busy)}, blocked ${percent(known.blocked)}${task.shares ? "" : " on average"}` : task.state;
}

function bar(task, y) {
  const [left, width] = [PAD + 18, 70];
  const { busy = 0, blocked = 0 } = shares(task) ?? {};
  const down = !["running", "finished", "stopped"].includes(task.state);
  const facts = [down || task.state === "stopped" ? task.state : null, task.incarnation > 1 ? `#${task.incarnation}` : null, task.standbys.length ? "standby" : null].filter(Boolean);
  const part = (kind, from, share) => s("rect", { class: kind, x: (left + width * from).toFixed(1), y, width: (width * share).toFixed(1), height: BAR - 5 });
  return s("g", {},
    s("title", {}, `${task.task}: ${task.state}, ${share(task)}, incarnation ${task.incarnation}${task.host ? `, on ${task.host}` : ""}${task.standbys.length ? ", has a standby" : ""}`),
    s("text", { class: "quiet", x: PAD, y: y + 10 }, task.task.slice(task.task.lastIndexOf("/") + 1)),
    part(down ? "down" : "idle", 0, 1), part("busy", 0, busy), part("blocked", busy, blocked),
    s("text", { class: "quiet", x: left + width + 6, y: y + 10 }, facts.join(" · ").slice(0, 14)));
}

// Shortens a title to fit into a box, but keeps the number of the chain's other operators.
function short(title) {
  if (title.length <= TITLE_MAX) return title;
  const more = title.match(/ \+\d+$/)?.[0] ?? "";
  return `${title.slice(0, TITLE_MAX - 1 - more.length)}…${more}`;
}

function box(node, tasks, at, drawn) {
  const members = node.tasks.map((name) => tasks.get(name)).filter(Boolean);
  const hosts = [...new Set(members.map((task) => task.host).filter(Boolean))];
  const facts = [`${members.length} ${members.length === 1 ? "task" : "tasks"}`, speed(node), hosts.length ? hosts.join(", ") : null];
  return s("a", { href: members.length === 1 ? link(members[0].task) : `#/operator/${encodeURIComponent(node.name)}`, transform: `translate(${at.x} ${at.y})` },
    s("title", {}, `${node.operators.join(" › ") || node.name}: ${facts.filter(Boolean).join(", ")}${node.letters ? "; what fails here goes to the dead letters" : ""}`),
    s("rect", { class: "node", width: WIDTH, height: at.height, rx: 6 }),
    s("text", { class: "strong", x: PAD, y: 19 }, short(node.title)),
    node.letters && !drawn && s("text", { class: "quiet letters", x: WIDTH - PAD, y: 19, "text-anchor": "end" }, "†"),
    s("text", { class: "quiet", x: PAD, y: 36 }, facts.filter(Boolean).join(" · ").slice(0, 34)),
    members.slice(0, BARS_MAX).map((task, place) => bar(task, HEAD + place * BAR)),
    members.length > BARS_MAX && s("text", { class: "quiet", x: PAD, y: HEAD + BARS_MAX * BAR + 10 }, `and ${members.length - BARS_MAX} more`));
}

const carried = (edge) => edge.bytes_rate ?? edge.average_bytes_rate;

// Almost every operator has an edge to the dead letters; a mark replaces each of them, and a button draws them all.
function letterEdges({ count: edges, drawn }, toggle) {
  if (!edges) return null;
  const what = edges === 1 ? "the edge to the dead letters" : `the ${edges} edges to the dead letters`;
  return h("p", {}, h("button", { type: "button", "aria-pressed": drawn ? "true" : "false", onclick: toggle }, drawn ? `Hide ${what}` : `† Show ${what}`));
}

function drawing(model) {
  const tasks = new Map(model.tasks.map((task) => [task.task, task]));
  // Everything that occupies space in a layer, in order: boxes, and edges that pass through.
  const layers = [];
  const put = ([layer, row], thing) => ((layers[layer] ??= [])[row] = thing);
  const boxes = new Map(model.graph.nodes.map((node) => [node.name, put([node.layer, node.row], { height: HEAD + Math.min(node.tasks.length, BARS_MAX + 1) * BAR + 6 })]));
  const ways = model.graph.edges.map((edge) => edge.way.map((place) => put(place, { height: WAY })));
  const heights = layers.map((things) => things.reduce((sum, thing) => sum + thing.height + GAP_Y, -GAP_Y));
  const tallest = Math.max(...heights);
  layers.forEach((things, layer) => {
    let y = 4 + (tallest - heights[layer]) / 2;
    for (const thing of things) {
      Object.assign(thing, { x: 4 + layer * (WIDTH + GAP_X), y, middle: y + thing.height / 2 });
      y += thing.height + GAP_Y;
    }
  });
  const widest = Math.max(1, ...model.graph.edges.map(carried));
  const titles = new Map(model.graph.nodes.map((node) => [node.name, node.title]));
  const edges = model.graph.edges.map((edge, place) => {
    const from = boxes.get(edge.source);
    let [d, x, y] = [`M${from.x + WIDTH} ${from.middle}`, from.x + WIDTH, from.middle];
    for (const next of [...ways[place], boxes.get(edge.target)]) {
      const middle = (x + next.x) / 2;
      d += `C${middle} ${y} ${middle} ${next.middle} ${next.x} ${next.middle}`;
      [x, y] = [next.x, next.middle];
      if (next.height === WAY) d += `H${(x += WIDTH)}`;
    }
    return s("path", { class: "edge", d, "stroke-width": (1.5 + 10 * Math.sqrt(carried(edge) / widest)).toFixed(1) },
      s("title", {}, `${titles.get(edge.source)} to ${titles.get(edge.target)}: ${bytes(carried(edge), "/s")}${model.present ? "" : " on average"}`));
  });
  const [width, height] = [layers.length * (WIDTH + GAP_X) - GAP_X + 8, tallest + 8];
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Graph of operators" },
    s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Operators and what flows between them" },
      edges, model.graph.nodes.map((node) => box(node, tasks, boxes.get(node.name), model.graph.letter_edges.drawn))));
}

export function summary(model) {
  const { totals } = model;
  return figures([
    ["records in", count(totals.records_in)], ["rows out", count(totals.records_out)],
    model.present ? ["records/s", rate(totals.rate_in)] : ["records/s on average", rate(totals.throughput_rps)],
    ["latency p50", ms(totals.p50_ms)], ["latency p99", ms(totals.p99_ms)],
    ["checkpoints", count(totals.checkpoints)], ["recoveries", count(totals.recoveries)],
    ["guarantee", model.guarantee],
  ]);
}

export function graph(model, { toggleLetterEdges }) {
  return [
    summary(model),
    model.problems.map((line) => h("p", { class: "badge warn" }, line)),
    drawing(model),
    letterEdges(model.graph.letter_edges, toggleLetterEdges),
    legend([["busy", "share of time busy"], ["blocked", "blocked by what follows"], ["idle", "waiting for records"], ["down", "not at work"]]), h("p", { class: "quiet" }, `An edge is as wide as its bytes per second; #2 is the second incarnation of a task.${model.present ? "" : " The job does not run: rates and shares are averages of its last run."}`),
    flow(model),
    h("h2", {}, "Tasks"), tasks(model, model.tasks),
  ];
}

export function tasks(model, rows) {
  const several = model.hosts.length > 0;
  const average = model.present ? "" : " on average";
  return table("Tasks", [
    ["task", (task) => h("a", { href: link(task.task) }, task.task)],
    ["operators", (task) => h("span", { title: task.operators.join(" › ") }, task.title)],
    ["state", (task) => h("span", { class: `badge ${{ running: "good", finished: "good", down: "bad" }[task.state] ?? "warn"}` }, task.state)],
    ...(several ? [["host", (task) => task.host ?? "–"]] : []),
    ["incarnation", (task) => task.incarnation, "num"],
    ["standby", (task) => task.standbys.join(", ") || "–"],
    [`rate${average}`, (task) => rate(task.rate ?? task.average_rate, ` ${task.unit}/s`), "num"],
    [`busy${average}`, (task) => percent(shares(task)?.busy), "num"],
    [`blocked${average}`, (task) => percent(shares(task)?.blocked), "num"],
    ["backlog", (task) => bytes(task.queued_bytes), "num"],
    ["state size", (task) => bytes(task.snapshot_bytes), "num"],
  ], rows);
}
