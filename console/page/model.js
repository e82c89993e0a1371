// What the page knows, and how it comes: live, by server-sent events, or where that is not to be
// had, by asking every few seconds.

const kAskEvery = 5000;

export const model = { status: null, work: null, events: null, isConnected: false };

const listeners = new Set();

// Calls it with the name of what has changed: "status", "work", "events", "connection".
export function listen(listener) {
  listeners.add(listener);
}

function tell(what) {
  for (const listener of listeners) listener(what);
}

function take(what, value) {
  model[what] = value;
  tell(what);
}

function connected(yes) {
  if (model.isConnected === yes) return;
  model.isConnected = yes;
  tell("connection");
}

// The operator's token stays in this page's memory, and is gone with it.
let token = "";
export function setToken(text) {
  token = text;
}

// Fails with the console's own sentence.
export async function ask(path, options = {}) {
  const headers = { Accept: "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(`api/v1/${path}`, {
    method: options.body === undefined ? "GET" : "POST",
    headers,
    body: options.body === undefined ? undefined : JSON.stringify(options.body),
    cache: "no-store",
    credentials: "omit",
  });
  const json = await answer.json();
  if (!answer.ok) throw new Error(json.error ?? `the console answers ${answer.status}`);
  return json;
}

async function askOnce() {
  try {
    take("status", await ask("status"));
    take("work", await ask("work"));
    take("events", await ask("events"));
    connected(true);
  } catch {
    connected(false);
  }
}

let source = null;
let timer = null;

function askOnAndOn() {
  if (timer !== null) return;
  askOnce();
  timer = setInterval(() => {
    if (document.visibilityState === "visible") askOnce();
  }, kAskEvery);
}

function stopAsking() {
  clearInterval(timer);
  timer = null;
}

function follow() {
  if (source !== null) return;
  source = new EventSource("api/v1/live");
  source.addEventListener("open", () => {
    stopAsking();
    connected(true);
  });
  for (const what of ["status", "work", "events"]) {
    source.addEventListener(what, (event) => take(what, JSON.parse(event.data)));
  }
  source.addEventListener("error", () => {
    connected(false);
    // The browser tries again by itself, unless it was refused.
    if (source?.readyState === EventSource.CLOSED) {
      source = null;
      askOnAndOn();
      setTimeout(follow, 6 * kAskEvery);
    }
  });
}

function leave() {
  source?.close();
  source = null;
  stopAsking();
}

// A page that nobody sees costs the cluster nothing.
export function begin() {
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") follow();
    else leave();
  });
  follow();
}
