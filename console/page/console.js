// The page: which view is shown, and what all of them share.

import { drives } from "./drives.js";
import { el, show } from "./dom.js";
import { events } from "./events.js";
import { files } from "./files.js";
import { begin, listen, model } from "./model.js";
import { overview } from "./overview.js";
import { span } from "./words.js";
import { work } from "./work.js";

// Each has a title, and a function that draws it into a node: draw(node, rest of the address,
// what has changed). It is called again when something has.
const kViews = { overview, drives, files, work, events };

const main = document.getElementById("main");
const freshness = document.getElementById("freshness");
const announcement = document.getElementById("announcement");
let shown = "";

function place() {
  const [name, ...rest] = location.hash.replace(/^#/, "").split("/");
  return { name: Object.hasOwn(kViews, name) ? name : "overview", rest: rest.join("/") };
}

function draw(changed) {
  const { name, rest } = place();
  if (name !== shown) {
    const heading = el("h1", {}, kViews[name].title);
    const body = el("div", { id: "view" });
    show(main, heading, body);
    for (const link of document.querySelectorAll("nav a")) {
      if (link.getAttribute("href") === `#${name}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (shown !== "") main.focus();
    shown = name;
    changed = "view";
  }
  kViews[name].draw(document.getElementById("view"), rest, changed);
  document.title = titleOf(kViews[name].title);
}

function titleOf(view) {
  const survey = model.status?.survey;
  const word = survey?.health?.state;
  return [view, survey?.cluster?.name, word, "Pinstripe"].filter(Boolean).join(" · ");
}

// Says aloud what has become of the cluster, and only when that is something else.
let said = "";
function announce() {
  const survey = model.status?.survey;
  const word = survey ? `The cluster is ${survey.health.state}` : model.status?.error ?? "";
  const alarms = model.status?.alarms ?? [];
  const text = [word, ...alarms.slice(0, 3).map((alarm) => alarm.what)].join(". ");
  if (text !== said) announcement.textContent = text;
  said = text;
}

function tellAge() {
  const taken = model.status?.taken_at;
  const age = taken ? Math.max(0, Date.now() - taken) / 1000 : null;
  const isStale = !model.isConnected || (age !== null && age > 20);
  freshness.classList.toggle("stale", isStale);
  const since = age === null ? "" : `, as of ${span(age)} ago`;
  freshness.textContent = model.isConnected ? `Live${since}` : `No connection to the console${since}`;
}

listen((what) => {
  if (what === "status") {
    document.getElementById("cluster").textContent = model.status.survey?.cluster?.name ?? "";
    announce();
  }
  tellAge();
  draw(what);
});
addEventListener("hashchange", () => draw("place"));
setInterval(tellAge, 1000);
draw("view");
begin();
