// The lineage of a row as a drawing: columns from the sources to the row, boxes with what was there, edges with what became of it.

import { count, h, s } from "./dom.js";

const [WIDTH, HEIGHT, GAP_X, GAP_Y, TOP, STRIPE] = [216, 58, 74, 14, 34, 5];
const [TITLE_MAX, TEXT_MAX] = [22, 30];

const cut = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);

// Returns the ids of a node and of everything before it.
function origins(edges, id) {
  const known = new Set([id]);
  for (let size = 0; size !== known.size; ) {
    size = known.size;
    for (const edge of edges) if (known.has(edge.to)) known.add(edge.from);
  }
  return known;
}

// `chosen` is the id of a node, and `to` returns the address that chooses one.
export function drawing(lineage, chosen, to) {
  const tallest = Math.max(...lineage.columns.map((column) => column.nodes.length + (column.left_out ? 0.6 : 0)));
  const height = TOP + tallest * (HEIGHT + GAP_Y) + 4;
  const places = new Map();
  lineage.columns.forEach((column, at) => {
    const first = TOP + ((tallest - column.nodes.length - (column.left_out ? 0.6 : 0)) * (HEIGHT + GAP_Y)) / 2 + (column.left_out ? 0.6 * (HEIGHT + GAP_Y) : 0);
    column.nodes.forEach((node, row) => places.set(node.id, { x: 6 + at * (WIDTH + GAP_X), y: first + row * (HEIGHT + GAP_Y), column: at }));
  });
  const width = 12 + lineage.columns.length * (WIDTH + GAP_X) - GAP_X;
  const lit = chosen ? origins(lineage.edges, chosen) : null;
  const faint = (...ids) => (lit && !ids.every((id) => lit.has(id)) ? " faint" : "");
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Lineage of the row" },
    s("svg", { class: "lineage", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `From ${count(lineage.inputs)} input records to the row` },
      s("defs", {}, s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 4.5, markerHeight: 4.5, orient: "auto" }, s("path", { class: "arrow", d: "M0 0l8 4-8 4z" }))),
      lineage.columns.map((column, at) => head(column, 6 + at * (WIDTH + GAP_X), places.get(column.nodes[0].id).y)),
      lineage.edges.map((edge) => edgeOf(edge, places, faint(edge.from, edge.to))),
      lineage.columns.flatMap((column) => column.nodes.map((node) => box(node, column, places.get(node.id), node.id === chosen, faint(node.id), to(node.id))))));
}

function head(column, x, first) {
  const name = cut(column.operator, TITLE_MAX);
  return [
    s("text", { class: "strong", x, y: 18 }, name, column.bounded && s("tspan", { class: "bound" }, "  ≤")),
    column.left_out > 0 && s("text", { class: "quiet", x: x + WIDTH / 2, y: first - 14, "text-anchor": "middle" }, `⋮  ${count(column.left_out)} earlier`),
  ];
}

// What became of a record flows to the right; what the same key met before stays in the column, from box to box.
function edgeOf(edge, places, faint) {
  const [from, to] = [places.get(edge.from), places.get(edge.to)];
  const same = from.column === to.column;
  const [x, y, end] = [from.x + WIDTH, from.y + HEIGHT / 2, to.y + HEIGHT / 2];
  const middle = (x + to.x) / 2;
  const bend = Math.min(34, 12 + Math.abs(to.y - from.y) / 12);
  const below = same && Math.abs(to.y - from.y - HEIGHT - GAP_Y) < 1;
  const d = below ? `M${from.x + 30} ${from.y + HEIGHT}V${to.y - 2}` : same ? `M${from.x} ${y}C${from.x - bend} ${y} ${to.x - bend} ${end} ${to.x - 2} ${end}` : `M${x} ${y}C${middle} ${y} ${middle} ${end} ${to.x - 2} ${end}`;
  const words = { record: "it became this", state: "came earlier for the same key" }[edge.role] ?? edge.role;
  return s("path", { class: `way ${edge.role === "record" ? "became" : "earlier"}${faint}`, d, "marker-end": "url(#arrow)" }, s("title", {}, edge.through.length ? `${words}, through ${edge.through.join(" › ")}` : words));
}

function box(node, column, { x, y }, chosen, faint, href) {
  const text = node.record || node.place;
  return s("a", { href, class: `origin ${column.kind}${faint}`, transform: `translate(${x} ${y.toFixed(1)})`, "aria-label": `${column.operator}, ${node.title}: ${text}`, "aria-current": chosen ? "true" : null },
    s("title", {}, `${node.place}\n${text}${node.bounded ? "\nan upper bound: it may have had no part in the row" : ""}`),
    s("rect", { class: `node${node.bounded ? " bounded" : ""}${chosen ? " picked" : ""}`, width: WIDTH, height: HEIGHT, rx: 7 }),
    s("rect", { class: "stripe", width: STRIPE, height: HEIGHT - 14, x: 7, y: 7, rx: 2 }),
    s("text", { class: "strong", x: 20, y: 23 }, cut(node.title, TITLE_MAX)),
    s("text", { class: "quiet", x: 20, y: 43 }, cut(text, TEXT_MAX)));
}

export function explanation(lineage) {
  const many = `${lineage.exact ? "exactly" : "at most"} ${count(lineage.inputs)} input ${lineage.inputs === 1 ? "record" : "records"}`;
  return [
    h("p", {}, h("span", { class: `badge ${lineage.exact ? "good" : "warn"}` }, lineage.exact ? "exact" : "≤ an upper bound"), ` The row comes from ${many}; version ${lineage.version}, code ${lineage.code}; replayed from epoch ${count(lineage.from_epoch)}.`),
    lineage.notes.length > 0 && h("ul", { class: "changes" }, lineage.notes.map((note) => h("li", {}, note))),
    lineage.left_out > 0 && h("p", { class: "quiet" }, `${count(lineage.left_out)} earlier records and events are not listed here; causal lineage --limit lists more.`),
  ];
}

export function nodeDetails(lineage, id) {
  const node = lineage.columns.flatMap((column) => column.nodes).find((each) => each.id === id);
  if (!node) return null;
  const item = (name, value) => value && h("div", {}, h("dt", {}, name), h("dd", {}, h("code", {}, value)));
  return h("section", { class: "failure", "aria-label": "What is chosen in the drawing" },
    h("h3", {}, node.title, h("span", { class: "quiet" }, `  ${node.place}`)),
    h("dl", { class: "commands" }, item("key", node.key), item("content", node.record),
      node.determinants.length > 0 && h("div", {}, h("dt", {}, "determinants of this event"), h("dd", {}, node.determinants.map((each) => h("code", {}, each)), node.more_determinants > 0 && ` and ${count(node.more_determinants)} more`))),
    node.bounded && h("p", { class: "quiet" }, "An upper bound: this operator keeps state in a way that does not say which earlier records of the key had a part in it."));
}
