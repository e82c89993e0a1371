// Work: what runs in the cluster, and, for operators, what is to run.

import { el, show } from "./dom.js";
import { ask, model, setToken } from "./model.js";
import { span, time } from "./words.js";

let operator = "";
let said = "";
let kind = "check";
let drives = "";
let drawAgain = () => {};

async function act(doing) {
  try {
    await doing();
    said = "";
  } catch (error) {
    said = error.message;
  }
  drawAgain();
}

function signIn() {
  const field = el("input", { id: "token", type: "password", autocomplete: "off", required: true, "data-key": "token" });
  return el("form", {
    class: "form",
    onsubmit: (event) => {
      event.preventDefault();
      setToken(field.value);
      act(async () => {
        operator = (await ask("operator")).name;
      });
    },
  }, el("label", { for: "token" }, "Token of an operator", field),
    el("button", { type: "submit", "data-key": "sign-in" }, "Sign in"));
}

function start() {
  const kinds = model.work?.kinds ?? [];
  const known = kinds.find((one) => one.name === kind) ?? kinds[0];
  const choice = el("select", {
    id: "kind", "data-key": "kind",
    onchange: () => {
      kind = choice.value;
      drawAgain();
    },
  }, kinds.map((one) => el("option", { value: one.name, selected: one.name === known?.name }, `${one.name}: ${one.what}`)));
  const field = el("input", {
    id: "drives", value: drives, inputmode: "numeric", placeholder: "3, 7", "data-key": "drives",
    oninput: () => {
      drives = field.value;
    },
  });
  return el("form", {
    class: "form",
    onsubmit: (event) => {
      event.preventDefault();
      const wanted = known.most_drives > 0 ? drives.split(/[\s,]+/).filter(Boolean).map(Number) : [];
      const text = wanted.length > 0 ? `${known.name} drive ${wanted.join(", ")}` : known.name;
      if (known.least_drives > 0 && !confirm(`Start to ${text}?`)) return;
      act(() => ask("work", { body: { kind: known.name, drives: wanted } }));
    },
  }, el("label", { for: "kind" }, "Work", choice),
    known?.most_drives > 0 ? el("label", { for: "drives" }, "Drives", field) : null,
    el("button", { type: "submit", "data-key": "start" }, "Start"),
    el("button", {
      type: "button", "data-key": "sign-out",
      onclick: () => {
        setToken("");
        operator = "";
        drawAgain();
      },
    }, `Sign out ${operator}`));
}

function howItEnded(chore) {
  if (chore.state !== "ended") {
    const left = chore.seconds_left === undefined ? "" : `, ${span(chore.seconds_left)} left`;
    return `${chore.doing || "it begins"}${left}`;
  }
  if (chore.exit_code === 0) return "done: all is in order";
  if (chore.exit_code === -1) return "it was stopped";
  return `ended with exit code ${chore.exit_code}`;
}

function choreBox(chore) {
  const isOver = chore.state === "ended";
  const name = chore.drives.length > 0 ? `${chore.kind} ${chore.drives.join(", ")}` : chore.kind;
  return el("li", { class: "panel" },
    el("h3", {}, `${name}, by ${chore.by}`),
    el("p", { class: "small quiet" }, isOver ? `${time(chore.started)} to ${time(chore.ended)}` : `since ${time(chore.started)}`),
    isOver ? null : el("progress", { max: 1, value: chore.done, "aria-label": `${chore.kind}: ${chore.doing}` }),
    el("p", {}, howItEnded(chore)),
    chore.said ? el("details", { "data-key": `said-${chore.id}` }, el("summary", { "data-key": `summary-${chore.id}` }, "What it says"),
      el("pre", {}, chore.said)) : null,
    operator && !isOver ? el("button", {
      type: "button", class: "plain", disabled: chore.state === "stopping", "data-key": `stop-${chore.id}`,
      onclick: () => act(() => ask(`chores/${chore.id}/stop`, { body: {} })),
    }, `Stop ${chore.kind}`) : null);
}

// Work of any host. Who began it, and what an operator may ask of it.
function workBox(one) {
  const name = [one.work, one.arguments].filter(Boolean).join(" ");
  const asks = { running: ["pause", "stop"], pausing: ["resume", "stop"], paused: ["resume", "stop"] }[one.state] ?? [];
  const left = one.seconds_left ? `, ${span(one.seconds_left)} left` : "";
  return el("li", { class: "panel" },
    el("h3", {}, `${one.number}: ${name}`),
    el("p", { class: "small quiet" }, `by ${one.user || "somebody"} on ${one.host}, since ${time(one.since)}`,
      one.asked_by ? `; last asked by ${one.asked_by}` : ""),
    el("progress", { max: 1, value: one.done, "aria-label": `${name}: ${one.doing}` }),
    el("p", {}, el("strong", {}, one.state), one.doing ? `: ${one.doing}${left}` : ""),
    operator ? asks.map((what) => el("button", {
      type: "button", class: "plain", "data-key": `${what}-${one.number}`,
      onclick: () => act(() => ask(`work/${one.number}/${what}`, { body: {} })),
    }, `${what[0].toUpperCase()}${what.slice(1)} ${name}`)) : null);
}

function draw(node, rest, changed) {
  drawAgain = () => draw(node, rest, "work");
  // Whoever is typing is left alone.
  const isTyping = node.contains(document.activeElement) && ["INPUT", "SELECT"].includes(document.activeElement.tagName);
  if (isTyping && changed === "status") return;
  const chores = model.work?.chores ?? [];
  const works = model.work?.work ?? [];
  const hasOperators = model.status?.has_operators ?? false;
  show(node,
    el("section", { class: "panel", "aria-label": "Start work" }, el("h2", {}, "Start work"),
      !hasOperators ? el("p", { class: "quiet" }, "This console has no operators: it only shows. --token-file gives it some.")
        : operator ? start() : signIn(),
      said ? el("p", { class: "said", role: "alert" }, said) : null),
    el("section", { "aria-label": "In the cluster" }, el("h2", {}, "In the cluster"),
      works.length === 0 ? el("p", { class: "quiet" }, "No work is going on.")
        : el("ul", { class: "plain", id: "works" }, works.map(workBox))),
    el("section", { "aria-label": "From this console" }, el("h2", {}, "From this console"),
      chores.length === 0 ? el("p", { class: "quiet" }, "Nothing was started here since the console runs.")
        : el("ul", { class: "plain" }, chores.map(choreBox))));
}

export const work = { title: "Work", draw };
