// Creates elements from plain values. Text always remains text, so nothing that a job writes can become markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

export const h = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

// Changes `old` until it equals `fresh`, but keeps equal parts, so that focus, selection and scroll position remain.
export function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || old.id !== fresh.id) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.dataset?.key !== fresh.dataset?.key || fresh.tagName === "BUTTON") {
    if (old.isEqualNode(fresh) && old.dataset?.key === fresh.dataset?.key) return;
    const focused = old === document.activeElement;
    old.replaceWith(fresh);
    if (focused) fresh.focus();
    return;
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !(old.tagName === "DETAILS" && name === "open")) old.removeAttribute(name);
  for (const { name, value } of [...fresh.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
  after.forEach((child, place) => (place < before.length ? morph(before[place], child) : old.append(child)));
  before.slice(after.length).forEach((child) => child.remove());
}

const number = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

export const NONE = "–";
export const count = (value) => (value === null || value === undefined ? NONE : number.format(value));
export const rate = (value, unit = "/s") => (value === null || value === undefined ? NONE : `${short.format(value)}${unit}`);
export function ms(value) {
  if (value === null || value === undefined) return NONE;
  return value >= 10000 ? `${(value / 1000).toFixed(1)} s` : `${value >= 100 ? number.format(value) : value.toFixed(1)} ms`;
}
export function bytes(value, unit = "") {
  if (value === null || value === undefined) return NONE;
  for (const name of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024 || name === "GiB") return `${value < 10 && name !== "B" ? value.toFixed(1) : value.toFixed(0)} ${name}${unit}`;
    value /= 1024;
  }
}
export const percent = (value) => (value === null || value === undefined ? NONE : `${Math.round(100 * value)} %`);
export function ago(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min ago` : `${Math.round(seconds / 3600)} h ago`;
}

export function figures(pairs) {
  return h("dl", { class: "figures" }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

// Creates a table; a column is [title, function that returns a row's value, "num" for numbers].
export function table(caption, columns, rows, empty) {
  if (!rows.length) return h("p", { class: "quiet" }, empty ?? "Nothing yet.");
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {},
      h("thead", {}, h("tr", {}, columns.map(([title, , kind]) => h("th", { scope: "col", class: kind }, title)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, columns.map(([, value, kind]) => h("td", { class: kind }, value(row))))))));
}

export function legend(entries) {
  return h("ul", { class: "legend" }, entries.map(([kind, text]) =>
    h("li", {}, s("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, s("rect", { class: kind, width: 10, height: 10, rx: 2 })), text)));
}
