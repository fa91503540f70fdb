// Charts with axes. The labels are text on the page, so they remain legible no matter how wide the chart is drawn.

import { h, ms, rate, s } from "./dom.js";

const [WIDTH, HEIGHT] = [600, 110];

// Returns the smallest number of the form 1, 2 or 5 times a power of ten that is not below the value.
export function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-3)));
  return [1, 2, 5, 10].map((step) => step * power).find((each) => each >= value * (1 - 1e-9));
}

// Returns a drawing whose coordinates range from (0, 0) at the top left to (WIDTH, HEIGHT). The highest value, half of
// it and 0 are on the left, and the labels `along` are below. `unit` is the unit of the vertical axis.
function axes({ label, unit, highest, value, along, caption }, ...drawn) {
  const grid = [0, HEIGHT / 2, HEIGHT].map((y) => s("line", { class: "axis", x1: 0, x2: WIDTH, y1: y, y2: y }));
  return h("figure", { class: "chart" },
    h("div", { class: "unit quiet" }, unit),
    h("div", { class: "upwards quiet", "aria-hidden": "true" }, [highest, highest / 2, 0].map((each) => h("span", {}, value(each)))),
    s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: "100%", height: HEIGHT, preserveAspectRatio: "none", role: "img", "aria-label": label }, grid, drawn),
    h("div", { class: "along quiet", "aria-hidden": "true" }, along.map((each) => h("span", {}, each))),
    h("figcaption", { class: "quiet" }, caption));
}

function seconds(value) {
  return value >= 120 ? `${(value / 60).toFixed(value % 60 ? 1 : 0)} min` : `${Math.round(value)} s`;
}

// Charts the records in and rows out of the last few minutes, with a mark for each failure.
export function flow(model) {
  const points = model.history;
  if (points.length < 3) return null;
  const first = Math.min(-30, points[0][0]);
  const highest = ceiling(Math.max(1, ...points.flatMap(([, entered, left]) => [entered, left])));
  const x = (at) => (WIDTH * (1 - at / first)).toFixed(1);
  const line = (place) => points.map((point) => `${x(point[0])},${(HEIGHT * (1 - point[place] / highest)).toFixed(1)}`).join(" ");
  const failures = model.recoveries.filter((failure) => -failure.ago_s > first);
  const before = model.present ? "ago" : "before the end";
  return axes(
    {
      label: "Records per second in and rows per second out", unit: "records/s", highest, value: (each) => rate(each, ""),
      along: [`${seconds(-first)} ${before}`, `${seconds(-first / 2)} ${before}`, model.present ? "now" : "the end"],
      caption: "solid: records in per second, dashed: rows out per second; bars: failures",
    },
    failures.map((failure) => s("rect", { class: "detected", x: x(-failure.ago_s), y: 0, width: Math.max(2, (WIDTH * failure.took_ms) / 1000 / -first).toFixed(1), height: HEIGHT, opacity: 0.6 }, s("title", {}, `failure of ${failure.tasks.map((task) => task.task).join(", ")}`))),
    s("polyline", { class: "in", points: line(1) }), s("polyline", { class: "out", points: line(2) }));
}

// Charts the durations of the most recent checkpoints, at most `shown` of them.
export function durations(took_ms, shown) {
  const [highest, width] = [ceiling(Math.max(1, ...took_ms)), WIDTH / shown];
  const many = took_ms.length === 1 ? "the only checkpoint" : `the last ${took_ms.length} checkpoints`;
  return axes(
    {
      label: `Durations of ${many}, at most ${ms(Math.max(...took_ms))}`, unit: "duration", highest, value: ms,
      along: [`${shown} checkpoints ago`, `${Math.round(shown / 2)}`, "the newest"],
      caption: `${many}; at most ${ms(Math.max(...took_ms))}`,
    },
    took_ms.map((took, place) => {
      const height = Math.max(1, (HEIGHT * took) / highest);
      return s("rect", { class: "busy", x: (WIDTH - (took_ms.length - place) * width).toFixed(1), width: (0.75 * width).toFixed(1), y: (HEIGHT - height).toFixed(1), height: height.toFixed(1) }, s("title", {}, ms(took)));
    }));
}
