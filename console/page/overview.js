// Overview: the word of `pinstripe status`, what somebody has to act on, and what there is.

import { chart, rateChart } from "./chart.js";
import { el, shape, show } from "./dom.js";
import { ask, model } from "./model.js";
import { bytes, count, healthSign, latency, percent, rate, span, time } from "./words.js";

let history = null;
let asked = 0;

function panel(title, ...children) {
  return el("section", { class: "panel", "aria-label": title }, el("h2", {}, title), children);
}

function facts(pairs) {
  return el("dl", { class: "facts" }, pairs.filter(([, text]) => text !== null && text !== undefined)
    .map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
}

export function alarmList(alarms) {
  if (alarms.length === 0) return el("p", { class: "quiet" }, "Nothing needs anybody.");
  return el("ul", { class: "alarms" }, alarms.slice(0, 50).map((alarm) =>
    el("li", { class: alarm.severity === "error" ? "bad" : "warn" },
      shape(alarm.severity === "error" ? "cross" : "warning"),
      el("div", {}, el("strong", {}, alarm.what), el("span", { class: "way-out" }, alarm.way_out)))),
    alarms.length > 50 ? el("li", { class: "idle" }, `and ${alarms.length - 50} more`) : null);
}

function health(status) {
  const survey = status.survey;
  const word = survey?.health?.state ?? (status.number > 0 ? "unknown" : "looking");
  const sign = healthSign(word);
  const told = (survey?.health?.text ?? "").replace(`${word}: `, "");
  const why = (told !== word && told) || (survey?.health?.reason ?? (survey?.health?.shortcomings ?? []).join("; "));
  const text = why || status.error || (word === "healthy" ? "All is there." : "");
  return el("p", { class: `health wide ${sign.tone}`, id: "health" }, shape(sign.shape),
    el("span", {}, el("span", { class: "word" }, word), el("span", { class: "why" }, text)));
}

// What may fail before something cannot be read or written.
function margin(survey) {
  const { reading, writing } = survey.survives ?? {};
  if (!reading) return null;  // nobody knows while the cluster is not open
  return panel("What may still fail",
    el("p", { class: "figure" }, reading.drives < 0 ? "nothing" : most(reading, survey)),
    el("p", { class: "quiet" }, reading.drives < 0 ? "A part of it cannot be read now."
      : "more, before something cannot be read."),
    el("p", {}, writing.drives < 0 ? "A part of it cannot be written now."
      : `Before something cannot be written: ${most(writing, survey)}.`));
}

// Hosts are worth a word where several drives share one.
function most(survives, survey) {
  const drives = `any ${count(survives.drives, "drive", "drives")}`;
  const domains = new Set(survey.drives.map((drive) => drive.domain));
  if (domains.size === survey.drives.length || domains.has("")) return drives;
  return survives.domains > 0 ? `${drives}, or any ${count(survives.domains, "host", "hosts")}`
    : `${drives}, but no whole host`;
}

function capacity(survey) {
  const space = survey.space;
  if (!space) return panel("Capacity", el("p", { class: "quiet" }, "Not known while no drive answers."));
  const used = space.usable_bytes - space.usable_free_bytes;
  const samples = history ?? [];
  return panel("Capacity",
    el("p", { class: "figure" }, `${bytes(space.usable_free_bytes)} free`),
    el("meter", {
      min: 0, max: space.usable_bytes, value: used, high: space.usable_bytes * 0.9,
      "aria-label": `${percent(used, space.usable_bytes)} of the usable space is used`,
    }),
    facts([
      ["usable", `${bytes(used)} used of ${bytes(space.usable_bytes)}`],
      ["raw", `${bytes(space.raw_used_bytes)} used of ${bytes(space.raw_bytes)}`],
      ["growth", growth(samples)],
      ["full", full(space.forecast)],
    ]),
    samples.length > 1 ? chart(samples, space.raw_bytes, "Raw space used in the last day") : null);
}

function growth(samples) {
  if (samples.length < 2) return null;
  const first = samples[0];
  const last = samples[samples.length - 1];
  const seconds = last.at - first.at;
  if (seconds < 60) return null;
  const rate = (last.used_bytes - first.used_bytes) / seconds;
  return `${bytes(rate * 3600)} an hour, in the last ${span(seconds)}`;
}

function full(forecast) {
  if (!forecast) return null;
  const past = `if it goes on as in the last ${span(forecast.over_seconds)}`;
  return forecast.full_in_seconds === undefined ? `not, ${past}`
    : `in ${span(forecast.full_in_seconds)}, ${past}`;
}

function look(name, what) {
  if (!what) return [name, "never, as far as is known"];
  const wrong = what.lost + what.short + what.register_replicas_short + what.not_looked_at;
  return [name, `${time(what.at)}: ${wrong === 0 ? "all was in order" : "not all was in order"}`];
}

function cluster(survey) {
  const is = survey.cluster;
  const drives = survey.drives;
  return panel("Cluster", facts([
    ["layout", `${is.data_shards}+${is.parity_shards}`],
    ["names", `${is.replicas} copies`],
    ["drives", `${drives.filter((one) => one.up).length} of ${drives.length} are up`],
    ["epoch", is.epoch === undefined ? null :
      `${is.epoch}${is.epoch_complete === false ? ", not complete" : ""}`],
    ["features", survey.features?.map((one) => one.name).join(", ") || null],
    look("checked", survey.checked),
    look("read", survey.read),
    ["uuid", is.uuid],
    ["configuration", is.config],
  ]));
}

// What drives do, as far as they tell.
function throughput(activity) {
  const title = "Throughput and latency";
  if (activity.error !== undefined) return panel(title, el("p", { class: "quiet" }, `Not known: ${activity.error}.`));
  const all = activity.all;
  const silent = activity.drives.filter((one) => one.silent !== null);
  if (all.silent !== null) {
    return panel(title, el("p", { class: "quiet" }, `Not known, as no drive tells: ${all.silent}.`));
  }
  const samples = (history ?? []).filter((one) => one.read_bytes_per_second !== undefined);
  return panel(title,
    facts([
      ["read", rate(all.read_bytes_per_second)],
      ["written", rate(all.written_bytes_per_second)],
      ["requests", `${Math.round(all.requests_per_second)}/s`],
      ["reads took", latency(all.reads)],
      ["changes took", latency(all.changes)],
    ]),
    el("p", { class: "quiet small" }, `Of drives, in ${span(activity.over_seconds)}, with what the console asks.`,
      silent.length > 0 ? ` ${count(silent.length, "drive does", "drives do")} not tell: ${named(silent)}.` : ""),
    samples.length > 1 ? rateChart(history, "Bytes a second in the last day") : null);
}

function named(drives) {
  const numbers = drives.slice(0, 8).map((one) => one.drive).join(", ");
  return drives.length > 8 ? `${numbers} and others` : numbers;
}

function busiest(activity) {
  if (!activity.clients) return null;
  const lines = activity.clients.filter((one) => one.read_bytes_per_second + one.written_bytes_per_second > 0)
    .map((one) => el("li", {}, `${one.program || "(does not say)"}${one.detail ? ` at ${one.detail}` : ""} on `
      + `${one.host || one.address}: ${rate(one.read_bytes_per_second)} read, ${rate(one.written_bytes_per_second)} written`));
  return panel("Busiest clients",
    lines.length === 0 ? el("p", { class: "quiet" }, "None moves data.") : el("ul", { class: "plain" }, lines),
    el("p", { class: "quiet small" }, `${count(activity.client_count, "client is", "clients are")} connected.`));
}

function percentDone(one) {
  return `${Math.round(100 * one.done)} %`;
}

function workNow() {
  const chores = (model.work?.chores ?? []).filter((chore) => chore.state !== "ended");
  const works = model.work?.work ?? [];
  const lines = works.length > 0
    ? works.map((one) => el("li", {}, `${one.work} ${one.arguments ?? ""}: ${one.state}, ${one.doing} ${percentDone(one)}`))
    : chores.map((chore) => el("li", {}, `${chore.kind}: ${chore.doing || "it begins"} ${percentDone(chore)}`));
  return panel("Work in progress",
    lines.length === 0 ? el("p", { class: "quiet" }, "None.") : el("ul", { class: "plain" }, lines),
    el("p", {}, el("a", { href: "#work", "data-key": "to-work" }, "All work")));
}

function draw(node, rest, changed) {
  const status = model.status;
  if (!status) return show(node, el("p", {}, "Asking the cluster."));
  if (changed === "view" || Date.now() - asked > 60_000) {
    asked = Date.now();
    ask("history").then((answer) => {
      history = answer.samples;
    }).catch(() => {});
  }
  const survey = status.survey;
  show(node, el("div", { class: "panels" },
    health(status),
    el("section", { class: "panel wide", "aria-label": "Alarms" },
      el("h2", {}, "Alarms"), alarmList(status.alarms)),
    survey ? [margin(survey), capacity(survey), throughput(status.activity), busiest(status.activity), cluster(survey)] : null,
    workNow()));
}

export const overview = { title: "Overview", draw };
