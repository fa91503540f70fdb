// The graph: a box for each operator with a bar for each of its tasks, edges as wide as their bytes per second.

import { bytes, count, figures, h, legend, ms, percent, rate, s, table } from "./dom.js";

const [WIDTH, GAP_X, GAP_Y, HEAD, BAR, PAD, WAY] = [186, 64, 24, 46, 16, 10, 14];
const BARS_MAX = 12;

export const link = (task) => `#/task/${encodeURIComponent(task)}`;

function share(task) {
  if (!task.shares) return task.state;
  return `busy ${percent(task.shares.busy)}, blocked ${percent(task.shares.blocked)}`;
}

function bar(task, y) {
  const [left, width] = [PAD + 18, 70];
  const { busy = 0, blocked = 0 } = task.shares ?? {};
  const down = !["running", "finished"].includes(task.state);
  const facts = [down ? task.state : null, task.incarnation > 1 ? `#${task.incarnation}` : null, task.standbys.length ? "standby" : null].filter(Boolean);
  const part = (kind, from, share) => s("rect", { class: kind, x: (left + width * from).toFixed(1), y, width: (width * share).toFixed(1), height: BAR - 5 });
  return s("g", {},
    s("title", {}, `${task.task}: ${task.state}, ${share(task)}, incarnation ${task.incarnation}${task.host ? `, on ${task.host}` : ""}${task.standbys.length ? ", has a standby" : ""}`),
    s("text", { class: "quiet", x: PAD, y: y + 10 }, task.task.slice(task.task.lastIndexOf("/") + 1)),
    part(down ? "down" : "idle", 0, 1), part("busy", 0, busy), part("blocked", busy, blocked),
    s("text", { class: "quiet", x: left + width + 6, y: y + 10 }, facts.join(" · ").slice(0, 14)));
}

function box(node, tasks, at) {
  const members = node.tasks.map((name) => tasks.get(name)).filter(Boolean);
  const others = node.operators.filter((name) => name !== node.name);
  const hosts = [...new Set(members.map((task) => task.host).filter(Boolean))];
  const facts = [`${members.length} ${members.length === 1 ? "task" : "tasks"}`, rate(node.rate, " records/s"), hosts.length ? hosts.join(", ") : null];
  return s("a", { href: members.length === 1 ? link(members[0].task) : `#/operator/${encodeURIComponent(node.name)}`, transform: `translate(${at.x} ${at.y})` },
    s("title", {}, `${node.name}${others.length ? ` (with ${others.join(", ")})` : ""}: ${facts.filter(Boolean).join(", ")}`),
    s("rect", { class: "node", width: WIDTH, height: at.height, rx: 6 }),
    s("text", { class: "strong", x: PAD, y: 19 }, node.name.length > 22 ? `${node.name.slice(0, 21)}…` : node.name),
    s("text", { class: "quiet", x: PAD, y: 36 }, facts.filter(Boolean).join(" · ").slice(0, 34)),
    members.slice(0, BARS_MAX).map((task, place) => bar(task, HEAD + place * BAR)),
    members.length > BARS_MAX && s("text", { class: "quiet", x: PAD, y: HEAD + BARS_MAX * BAR + 10 }, `and ${members.length - BARS_MAX} more`));
}

function drawing(model) {
  const tasks = new Map(model.tasks.map((task) => [task.task, task]));
  // Everything that takes up room in a layer, in its order: boxes, and edges that pass.
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
  const widest = Math.max(1, ...model.graph.edges.map((edge) => edge.bytes_rate));
  const edges = model.graph.edges.map((edge, place) => {
    const from = boxes.get(edge.source);
    let [d, x, y] = [`M${from.x + WIDTH} ${from.middle}`, from.x + WIDTH, from.middle];
    for (const next of [...ways[place], boxes.get(edge.target)]) {
      const middle = (x + next.x) / 2;
      d += `C${middle} ${y} ${middle} ${next.middle} ${next.x} ${next.middle}`;
      [x, y] = [next.x, next.middle];
      if (next.height === WAY) d += `H${(x += WIDTH)}`;
    }
    return s("path", { class: "edge", d, "stroke-width": (1.5 + 10 * Math.sqrt(edge.bytes_rate / widest)).toFixed(1) },
      s("title", {}, `${edge.source} to ${edge.target}: ${bytes(edge.bytes_rate, "/s")}`));
  });
  const [width, height] = [layers.length * (WIDTH + GAP_X) - GAP_X + 8, tallest + 8];
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Graph of operators" },
    s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Operators and what flows between them" },
      edges, model.graph.nodes.map((node) => box(node, tasks, boxes.get(node.name)))));
}

// Records in and rows out over the last minutes, with a mark for each failure.
function chart(model) {
  const points = model.history;
  if (points.length < 3) return null;
  const [width, height, first, highest] = [600, 90, Math.min(-30, points[0][0]), Math.max(1, ...points.flatMap(([, i, o]) => [i, o]))];
  const x = (at) => (width * (1 - at / first)).toFixed(1);
  const y = (value) => (height - 6 - (height - 20) * (value / highest)).toFixed(1);
  const line = (place) => points.map((point) => `${x(point[0])},${y(point[place])}`).join(" ");
  const failures = model.recoveries.filter((failure) => -failure.ago_s > first);
  return h("figure", {}, s("svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", height, preserveAspectRatio: "none", role: "img", "aria-label": "Records per second in and rows per second out" },
    s("line", { class: "axis", x1: 0, x2: width, y1: height - 6, y2: height - 6 }),
    failures.map((failure) => s("rect", { class: "detected", x: x(-failure.ago_s), y: 4, width: Math.max(2, (width * failure.took_ms) / 1000 / -first).toFixed(1), height: height - 10, opacity: 0.6 }, s("title", {}, `failure of ${failure.tasks.map((task) => task.task).join(", ")}`))),
    s("polyline", { class: "in", points: line(1) }), s("polyline", { class: "out", points: line(2) })),
    h("figcaption", { class: "quiet" }, `solid: records in per second, dashed: rows out, last ${Math.round(-first)} s, at most ${rate(highest)}; bars: failures`));
}

export function summary(model) {
  const { totals } = model;
  return figures([
    ["records in", count(totals.records_in)], ["rows out", count(totals.records_out)],
    ["records/s", model.present ? rate(totals.rate_in) : rate(totals.throughput_rps)],
    ["latency p50", ms(totals.p50_ms)], ["latency p99", ms(totals.p99_ms)],
    ["checkpoints", count(totals.checkpoints)], ["recoveries", count(totals.recoveries)],
    ["guarantee", model.guarantee],
  ]);
}

export function graph(model) {
  return [
    summary(model),
    model.problems.map((line) => h("p", { class: "badge warn" }, line)),
    drawing(model),
    legend([["busy", "share of time busy"], ["blocked", "blocked by what follows"], ["idle", "waiting for records"], ["down", "not at work"]]), h("p", { class: "quiet" }, `An edge is as wide as its bytes per second; #2 is the second incarnation of a task.${model.present ? "" : " Rates and shares are those of the whole run."}`),
    chart(model),
    h("h2", {}, "Tasks"), tasks(model, model.tasks),
  ];
}

export function tasks(model, rows) {
  const several = model.hosts.length > 0;
  return table("Tasks", [
    ["task", (task) => h("a", { href: link(task.task) }, task.task)],
    ["state", (task) => h("span", { class: `badge ${{ running: "good", finished: "good", down: "bad" }[task.state] ?? "warn"}` }, task.state)],
    ...(several ? [["host", (task) => task.host ?? "–"]] : []),
    ["incarnation", (task) => task.incarnation, "num"],
    ["standby", (task) => task.standbys.join(", ") || "–"],
    ["records/s", (task) => rate(task.rate), "num"],
    ["busy", (task) => percent(task.shares?.busy), "num"],
    ["blocked", (task) => percent(task.shares?.blocked), "num"],
    ["backlog", (task) => bytes(task.queued_bytes), "num"],
    ["state size", (task) => bytes(task.snapshot_bytes), "num"],
  ], rows);
}
