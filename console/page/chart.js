// A curve over time, as an SVG that says in words what it shows.

import { el, svg } from "./dom.js";
import { bytes, rate, span } from "./words.js";

const kWidth = 600;
const kHeight = 140;
const kAway = new Set(["down", "failed", "missing"]);

// `samples` in order of time, of used_bytes and state; `most`: the top of the scale.
export function chart(samples, most, title) {
  const first = samples[0].at;
  const last = Math.max(samples[samples.length - 1].at, first + 1);
  const x = (at) => (kWidth * (at - first) / (last - first)).toFixed(1);
  const y = (used) => (kHeight - kHeight * Math.min(1, used / Math.max(1, most))).toFixed(1);
  const points = samples.map((one) => `${x(one.at)},${y(one.used_bytes)}`).join(" ");
  const gone = [];
  for (let i = 0; i + 1 < samples.length; ++i) {
    if (!kAway.has(samples[i].state)) continue;
    gone.push(svg("rect", {
      class: "gone", x: x(samples[i].at), y: 0, height: kHeight,
      width: Math.max(1, x(samples[i + 1].at) - x(samples[i].at)),
    }));
  }
  const now = samples[samples.length - 1].used_bytes;
  const words = `${title}: from ${bytes(samples[0].used_bytes)} ${span(last - first)} ago to `
    + `${bytes(now)} of ${bytes(most)}`
    + (gone.length > 0 ? "; it was away for a part of that time" : "");
  return svg("svg", {
    class: "chart", viewBox: `0 0 ${kWidth} ${kHeight}`, preserveAspectRatio: "none", role: "img",
    "aria-label": words,
  },
    svg("title", {}, words), gone,
    svg("polygon", { class: "area", points: `0,${kHeight} ${points} ${kWidth},${kHeight}` }),
    svg("polyline", { class: "curve", points }));
}

// Bytes read and written a second. Where nobody told, there is a gap.
export function rateChart(samples, title) {
  const first = samples[0].at;
  const last = Math.max(samples[samples.length - 1].at, first + 1);
  const known = samples.filter((one) => one.read_bytes_per_second !== undefined);
  const most = Math.max(1, ...known.map((one) => Math.max(one.read_bytes_per_second, one.written_bytes_per_second)));
  const curves = (key, kind) => runs(samples, key).map((run) => svg("polyline", {
    class: `curve ${kind}`,
    points: run.map((one) => `${(kWidth * (one.at - first) / (last - first)).toFixed(1)},`
      + `${(kHeight - kHeight * one[key] / most).toFixed(1)}`).join(" "),
  }));
  const top = (key) => rate(Math.max(0, ...known.map((one) => one[key])));
  const words = `${title}, over ${span(last - first)}: at most ${top("read_bytes_per_second")} read (solid) and `
    + `${top("written_bytes_per_second")} written (dashed)`;
  return el("figure", {}, svg("svg", {
    class: "chart", viewBox: `0 0 ${kWidth} ${kHeight}`, preserveAspectRatio: "none", role: "img",
    "aria-label": words,
  },
    svg("title", {}, words),
    curves("read_bytes_per_second", "read"), curves("written_bytes_per_second", "written")),
  el("figcaption", { class: "quiet small" }, words));
}

// Stretches in which there is a figure at least every few minutes. What changes between two samples
// that are due has a sample of its own, without any.
function runs(samples, key) {
  const kGap = 180;  // seconds
  const found = [];
  let before = -Infinity;
  for (const one of samples.filter((each) => each[key] !== undefined)) {
    if (one.at - before > kGap) found.push([]);
    found[found.length - 1].push(one);
    before = one.at;
  }
  return found;
}
