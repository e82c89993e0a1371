// A curve over time, as an SVG that says in words what it shows.

import { svg } from "./dom.js";
import { bytes, span } from "./words.js";

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
