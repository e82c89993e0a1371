// Events: what happened, newest first.

import { el, shape, show } from "./dom.js";
import { model } from "./model.js";
import { time } from "./words.js";

const kTones = { error: ["cross", "bad"], warning: ["warning", "warn"] };

function row(event) {
  const [sign, tone] = kTones[event.level] ?? ["dash", "idle"];
  return el("li", { class: tone }, shape(sign), el("div", {}, el("span", { class: "way-out small" }, time(event.at)),
    el("span", {}, event.text)));
}

function draw(node) {
  const events = model.events?.events;
  if (!events) return show(node, el("p", { class: "quiet" }, "Asking the cluster."));
  // In order of time: the console may have heard of some late.
  const sorted = [...events].sort((a, b) => a.at - b.at);
  show(node, events.length === 0 ? el("p", { class: "quiet" }, "Nothing has happened, as far as is known.")
    : el("ul", { class: "alarms" }, sorted.slice(-300).reverse().map(row)));
}

export const events = { title: "Events", draw };
