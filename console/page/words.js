// Words, numbers and signs that all views share.

const kUnits = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];

// "1.5 GB": decimal units, as `pinstripe status` prints them.
export function bytes(number) {
  if (!Number.isFinite(number)) return "unknown";
  let amount = number;
  let unit = 0;
  while (Math.abs(amount) >= 999.95 && unit + 1 < kUnits.length) {
    amount /= 1000;
    ++unit;
  }
  return `${unit === 0 ? amount : amount.toFixed(1)} ${kUnits[unit]}`;
}

export function rate(number) {
  return `${bytes(Math.round(number))}/s`;
}

// "0.85 ms", "120 ms": within which time half, and 99 of 100, were answered.
export function latency(took) {
  if (took.count === 0) return "none";
  const text = (seconds) => `${(1000 * seconds).toFixed(seconds < 0.01 ? 2 : 0)} ms`;
  return `${text(took.p50_seconds)} (p50), ${text(took.p99_seconds)} (p99)`;
}

export function percent(part, whole) {
  return whole > 0 ? `${(100 * part / whole).toFixed(1)} %` : "0 %";
}

export function span(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} days`;
}

export function time(seconds) {
  return new Date(seconds * 1000).toLocaleString();
}

export function count(number, one, many) {
  return `${number} ${number === 1 ? one : many}`;
}

// How the states of drives look: a word, a shape and a class of colour.
const kStates = {
  up: ["up", "check", "good"],
  full: ["full", "full", "warn"],
  doubt: ["no say yet", "question", "warn"],
  draining: ["draining", "arrow", "warn"],
  drained: ["drained", "dash", "idle"],
  failed: ["failed", "broken", "bad"],
  down: ["down", "cross", "bad"],
  missing: ["missing", "question", "bad"],
  new: ["not added", "plus", "idle"],
};
export const kDriveStates = Object.keys(kStates);

export function driveState(drive) {
  const [word, shape, tone] = kStates[drive.sign] ?? kStates[drive.up ? "up" : "down"];
  return { word, shape, tone };
}

export function stateNamed(name) {
  const [word, shape, tone] = kStates[name];
  return { word, shape, tone };
}

const kHealth = {
  healthy: ["check", "good"],
  degraded: ["warning", "warn"],
  damaged: ["broken", "bad"],
  unavailable: ["cross", "bad"],
};

export function healthSign(word) {
  const [shape, tone] = kHealth[word] ?? ["question", "idle"];
  return { shape, tone };
}

// The host of a drive: its domain where the cluster has some, else what is before the port.
export function hostOf(drive) {
  if (drive.domain) return drive.domain;
  const address = (drive.address ?? "").split(",")[0];
  const colon = address.lastIndexOf(":");
  return colon > 0 ? address.slice(0, colon) : address || "not listed";
}

export function byHost(drives) {
  const hosts = new Map();
  for (const drive of drives) {
    const host = hostOf(drive);
    if (!hosts.has(host)) hosts.set(host, []);
    hosts.get(host).push(drive);
  }
  return hosts;
}
