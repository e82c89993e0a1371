// Files: the tree, and where the shards of a file are.

import { el, show } from "./dom.js";
import { ask, model } from "./model.js";
import { byHost, bytes, count, time } from "./words.js";

const kEntries = 200;
const kStripes = 32;

// The address has the path as it is encoded in links: names may be any bytes.
let path = null;
let listing = null;
let file = null;
let failure = "";

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function parts() {
  return path.split("/").filter(Boolean);
}

function crumbs() {
  const names = parts();
  return el("nav", { "aria-label": "Path" }, el("ol", { class: "path" },
    el("li", {}, el("a", { href: "#files" }, "all files")),
    names.map((name, i) => el("li", {}, "/ ", i + 1 < names.length
      ? el("a", { href: `#files/${names.slice(0, i + 1).join("/")}` }, decoded(name))
      : el("span", { "aria-current": "page" }, decoded(name))))));
}

function row(entry) {
  const link = `#files/${[...parts(), entry.encoded].join("/")}`;
  return el("tr", {},
    el("td", {}, el("a", { href: link }, entry.name, entry.kind === "directory" ? "/" : "")),
    el("td", {}, entry.kind),
    el("td", { class: "number" }, entry.kind === "file" && entry.size !== undefined ? bytes(entry.size) : ""),
    el("td", { class: "number" }, entry.modified === undefined ? "" : time(entry.modified)));
}

function directory() {
  const more = listing.more ? el("button", {
    type: "button", class: "plain", "data-key": "more", onclick: () => askDirectory(true),
  }, "Show more") : null;
  return [
    el("div", { class: "table panel" }, el("table", {},
      el("caption", { class: "visually-hidden" }, "Entries of the directory"),
      el("thead", {}, el("tr", {}, ["name", "kind", "size", "changed"].map((name, i) =>
        el("th", { scope: "col", class: i > 1 ? "number" : null }, name)))),
      el("tbody", {}, listing.entries.map(row))),
    listing.entries.length === 0 ? el("p", { class: "quiet" }, "It is empty.") : null),
    more,
  ];
}

// What is true of the file as a whole, in the words of `pinstripe why`.
function verdict() {
  const { state, margin } = file;
  const tone = { whole: "good", short: "warn" }[state] ?? "bad";
  const text = state === "whole" ? `It is whole: any ${count(margin, "drive", "drives")} may be lost.`
    : state === "short" ? `It can be read, and not all of it is there: any ${count(margin, "drive", "drives")} more may be lost.`
      : margin < 0 ? `It cannot be read until ${count(-margin, "drive comes", "drives come")} back.`
        : "It cannot be read, as its block map cannot.";
  return el("p", { class: `health ${tone}`, id: "verdict" }, el("span", {}, el("span", { class: "word" }, state),
    el("span", { class: "why" }, text)));
}

function partTable() {
  return el("div", { class: "table" }, el("table", {},
    el("caption", { class: "visually-hidden" }, "What the file consists of"),
    el("thead", {}, el("tr", {}, ["what", "records", "form", "needed", "may be lost besides"].map((name) =>
      el("th", { scope: "col" }, name)))),
    el("tbody", {}, file.parts.map((part) => {
      const lacking = Math.max(0, ...Object.keys(part.records_by_lacking_shards).map(Number));
      return el("tr", {}, el("th", { scope: "row" }, part.what), el("td", {}, part.count), el("td", {}, part.form),
        el("td", {}, part.needed), el("td", {}, part.shards - lacking - part.needed));
    }))));
}

function shardMark(shard, index, stripe) {
  const isData = index < stripe.data_shards;
  const isCopy = stripe.data_shards === 1;
  const what = isCopy ? `copy ${index + 1}` : isData ? `data shard ${index + 1}` : `parity shard ${index + 1 - stripe.data_shards}`;
  const sign = isCopy ? "C" : isData ? "D" : "P";
  const number = isData || isCopy ? index + 1 : index + 1 - stripe.data_shards;
  const classes = ["shard", isData ? "data" : "parity", shard.there ? "" : "away", shard.spare ? "spare" : ""];
  const words = `${what}${shard.spare ? ", on a spare" : ""}${shard.there ? "" : ", away"}`;
  return el("span", { class: classes.filter(Boolean).join(" "), title: words, role: "img", "aria-label": words },
    `${shard.there ? "" : "✕"}${sign}${number}`);
}

function picture() {
  const stripes = file.stripes ?? [];
  if (stripes.length === 0) return null;
  const used = new Set(stripes.flatMap((stripe) => stripe.shards.map((shard) => shard.drive)));
  const known = (model.status?.survey?.drives ?? []).filter((drive) => used.has(drive.id));
  const missing = [...used].filter((id) => id > 0 && !known.some((drive) => drive.id === id));
  const hosts = byHost([...known, ...missing.map((id) => ({ id, address: "" }))]);
  const columns = [...hosts].flatMap(([host, drives]) => drives.map((drive, i) => ({ host, drive, isFirst: i === 0 })));
  const rows = stripes.map((stripe) => {
    const nowhere = stripe.shards.filter((shard) => shard.drive === 0).length;
    return el("tr", {},
      el("th", { scope: "row" }, stripe.what === "blocks" ? `block ${stripe.block}` : `patch of ${stripe.block}`),
      columns.map(({ drive, isFirst }) => el("td", { class: isFirst ? "first" : null },
        stripe.shards.map((shard, i) => shard.drive === drive.id ? shardMark(shard, i, stripe) : null))),
      el("td", { class: "first" }, stripe.margin < 0 ? `lacks ${-stripe.margin}` : String(stripe.margin)),
      el("td", {}, nowhere > 0 ? `${nowhere} not stored` : ""));
  });
  return [
    el("h2", {}, "Its stripes"),
    el("p", { class: "small quiet" }, "D: data, P: parity, C: a copy; round: on a spare; dashed, with a cross: away."),
    el("div", { class: "stripes", tabindex: "0", role: "region", "aria-label": "Stripes over hosts and drives" },
      el("table", { class: "stripes", id: "stripes" },
        el("caption", { class: "visually-hidden" }, "Which shard of each stripe is on which drive"),
        el("thead", {},
          el("tr", {}, el("td", {}), [...hosts].map(([host, drives]) =>
            el("th", { scope: "colgroup", colspan: drives.length, class: "host-name" }, host)), el("td", { colspan: 2 })),
          el("tr", {}, el("th", { scope: "col" }, "stripe"), columns.map(({ drive, isFirst }) =>
            el("th", { scope: "col", class: isFirst ? "first" : null }, drive.id)),
            el("th", { scope: "col", class: "first" }, "may be lost"), el("td", {}))),
        el("tbody", {}, rows))),
    el("p", { class: "quiet" }, `${stripes.length} of ${count(file.stripe_count, "stripe", "stripes")} are drawn. `,
      stripes.length < file.stripe_count ? el("button", {
        type: "button", class: "plain", "data-key": "more", onclick: () => askFile(stripes.length),
      }, "Draw more") : null),
  ];
}

function fileView() {
  return [
    verdict(),
    el("section", { class: "panel", "aria-label": "Parts" }, el("p", {}, `${bytes(file.size)}`,
      file.inline_bytes > 0 ? `, of which ${bytes(file.inline_bytes)} are in its inode` : "",
      file.away.length > 0 ? `; away: ${file.away.map((id) => `drive ${id}`).join(", ")}` : "",
      file.damaged.length > 0 ? `; damaged: ${file.damaged.map((id) => `drive ${id}`).join(", ")}` : ""),
    partTable()),
    el("section", { class: "panel", "aria-label": "Picture" }, picture()
      ?? el("p", { class: "quiet" }, "It has no stripes: what it holds is in its inode.")),
  ];
}

let drawAgain = () => {};

async function attempt(wanted, search) {
  try {
    await search();
    failure = "";
  } catch (error) {
    if (path !== wanted) return;
    failure = error.message;
  }
  if (path === wanted) drawAgain();
}

// In the console's interface a path has bytes, and each name of ours is encoded already.
function query() {
  return `path=${path === "" ? "%2F" : parts().map((name) => `%2F${name}`).join("")}`;
}

function askDirectory(more) {
  const wanted = path;
  const last = more ? listing.entries[listing.entries.length - 1].encoded : "";
  return attempt(wanted, async () => {
    const answer = await ask(`files?${query()}&max=${kEntries}&after=${last}`);
    if (path !== wanted) return;
    if (!answer.is_directory) return;
    listing = more ? { ...answer, entries: [...listing.entries, ...answer.entries] } : answer;
  });
}

function askFile(skip) {
  const wanted = path;
  return attempt(wanted, async () => {
    const answer = await ask(`why?${query()}&stripes=${kStripes}&skip=${skip}`);
    if (path !== wanted) return;
    if (skip > 0) answer.stripes = [...file.stripes, ...(answer.stripes ?? [])];
    file = answer;
  });
}

// It is a directory or something else: the console says which.
async function askFor() {
  const wanted = path;
  await askDirectory(false);
  if (path === wanted && listing === null && !failure) await askFile(0);
}

let askedNumber = 0;

function draw(node, rest, changed) {
  drawAgain = () => draw(node, rest, "files");
  if (path !== rest || changed === "view") {
    path = rest;
    listing = null;
    file = null;
    failure = "";
    askFor();
  } else if (changed === "status" && file !== null && (file.stripes ?? []).length <= kStripes
      && Date.now() - askedNumber > 4000) {
    askedNumber = Date.now();
    askFile(0);
  }
  if (changed === "status" && listing !== null) return;  // nothing of it is in there
  show(node, crumbs(),
    failure && !file && !listing ? el("p", { class: "said", role: "alert" }, failure) : null,
    file ? fileView() : listing ? directory() : failure ? null : el("p", {}, "Asking the cluster."));
}

export const files = { title: "Files", draw };
