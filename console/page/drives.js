// Drives: a grid of hosts and their drives, and one drive with its history.

import { chart, rateChart } from "./chart.js";
import { el, shape, show } from "./dom.js";
import { ask, model } from "./model.js";
import { byHost, bytes, count, driveState, hostOf, kDriveStates, latency, percent, rate, stateNamed } from "./words.js";

let chosen = null;
let samples = null;
let asked = "";

function legend(drives) {
  const numbers = new Map();
  for (const drive of drives) numbers.set(drive.sign, (numbers.get(drive.sign) ?? 0) + 1);
  return el("ul", { class: "legend", "aria-label": "States of drives" },
    kDriveStates.filter((name) => numbers.has(name) || name === "up").map((name) => {
      const state = stateNamed(name);
      return el("li", {}, el("span", { class: `sign ${state.tone}` }, shape(state.shape)),
        `${state.word}: ${numbers.get(name) ?? 0}`);
    }));
}

function tile(drive) {
  const state = driveState(drive);
  const filled = drive.capacity_bytes > 0 ? drive.used_bytes / drive.capacity_bytes : 0;
  const level = el("span", { class: "level" });
  level.style.setProperty("width", `${Math.round(100 * Math.min(1, filled))}%`);
  const fill = drive.capacity_bytes ? `, ${percent(drive.used_bytes, drive.capacity_bytes)} full` : "";
  return el("li", {}, el("button", {
    type: "button", class: `drive ${state.tone}`, "data-key": `drive-${drive.id}`,
    "aria-label": `Drive ${drive.id}: ${state.word}${fill}`,
    "aria-pressed": chosen === drive.id ? "true" : "false",
    onclick: () => {
      location.hash = chosen === drive.id ? "#drives" : `#drives/${drive.id}`;
    },
  }, shape(state.shape), el("span", { class: "id" }, drive.id), level));
}

function hostBox(host, drives) {
  const wrong = drives.filter((one) => driveState(one).tone === "bad").length;
  const text = wrong > 0 ? `${count(drives.length, "drive", "drives")}, ${wrong} away`
    : count(drives.length, "drive", "drives");
  return el("section", { class: "host", "aria-label": `Host ${host}` },
    el("h2", {}, host, " ", el("span", { class: "quiet small" }, text)),
    el("ul", { class: "drives" }, drives.map(tile)));
}

// What it does, as far as it tells.
function workOf(drive) {
  const activity = model.status?.activity ?? {};
  const work = (activity.drives ?? []).find((one) => one.drive === drive.id);
  const why = work ? work.silent : activity.error ?? "it was not asked";
  if (why !== null) return [["throughput", `not known: ${why}`]];
  return [
    ["read", rate(work.read_bytes_per_second)],
    ["written", rate(work.written_bytes_per_second)],
    ["requests", `${Math.round(work.requests_per_second)}/s`],
    ["reads took", latency(work.reads)],
    ["changes took", latency(work.changes)],
  ];
}

function details(drive) {
  const state = driveState(drive);
  const pairs = [
    ["state", state.word],
    ["why", drive.reason ?? drive.no_say],
    ["host", hostOf(drive)],
    ["address", drive.address],
    ["used", drive.capacity_bytes ?
      `${bytes(drive.used_bytes)} of ${bytes(drive.capacity_bytes)} (${percent(drive.used_bytes, drive.capacity_bytes)})`
      : null],
    ...workOf(drive),
    ["temperature", drive.temperature_celsius > 0 ? `${Math.round(drive.temperature_celsius)} °C` : null],
    ["software", drive.software],
    ["work", drive.work?.what],
    ["left to move", drive.drain && !drive.drain.finished && drive.drain.shards_left !== undefined ?
      `${drive.drain.more_left ? "more than " : ""}${count(drive.drain.shards_left, "shard", "shards")}` : null],
  ].filter(([, text]) => text);
  return el("section", { class: "panel", "aria-label": `Drive ${drive.id}`, id: "drive-details" },
    el("h2", {}, `Drive ${drive.id}`),
    el("dl", { class: "facts" }, pairs.map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)])),
    el("h3", {}, "The last day"),
    samples && samples.length > 1
      ? chart(samples, drive.capacity_bytes ?? 0, `Space used on drive ${drive.id}`)
      : el("p", { class: "quiet" }, "The console has not watched long enough to draw anything."),
    samples && samples.filter((one) => one.read_bytes_per_second !== undefined).length > 1
      ? rateChart(samples, `Bytes a second of drive ${drive.id}`) : null);
}

function askHistory(id) {
  const key = `${id} ${Math.floor(Date.now() / 30_000)}`;
  if (asked === key) return;
  asked = key;
  ask(`drives/${id}/history`).then((answer) => {
    if (chosen === id) samples = answer.samples;
  }).catch(() => {});
}

function draw(node, rest) {
  const survey = model.status?.survey;
  if (!survey) return show(node, el("p", {}, model.status?.error ?? "Asking the cluster."));
  const id = rest === "" ? null : Number(rest);
  if (id !== chosen) samples = null;
  chosen = id;
  const drive = survey.drives.find((one) => one.id === id);
  if (drive) askHistory(id);
  show(node, legend(survey.drives), drive ? details(drive) : null,
    el("div", { class: "hosts" },
      [...byHost(survey.drives)].map(([host, drives]) => hostBox(host, drives))));
}

export const drives = { title: "Hosts and drives", draw };
