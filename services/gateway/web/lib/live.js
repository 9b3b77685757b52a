// One stream of events for the page. Those who want events say which; the stream follows all of their types, goes on
// where it broke off, and rests while nobody looks at the tab.
import { raw, token } from "./api.js";
import { useEffect, useRef, useState } from "./html.js";

const FIRST_MS = 500;
const LONGEST_MS = 15000;

/** @typedef {{id: string, type: string, at: number, [field: string]: any}} Event */
/** @typedef {"off" | "connecting" | "live" | "retrying"} State */

/** @type {Set<{types: string[], take: (events: Event[], lost: boolean) => void}>} */
const readers = new Set();
/** @type {Set<(state: State) => void>} */
const watchers = new Set();
/** @type {State} */
let state = "off";
let lastId = "";
let following = "";
/** @type {AbortController | null} */
let stop = null;
let pause = FIRST_MS;
let timer = 0;
/** @type {Event[]} */
let waiting = [];
let lost = false;
let overflowed = false;
let frame = 0;

/** @param {State} next */
function tell(next) {
  state = next;
  for (const watcher of watchers) watcher(next);
}

function wanted() {
  const types = new Set();
  for (const reader of readers) for (const type of reader.types) types.add(type);
  return [...types].sort();
}

/** The gateway has answered something: if the stream waits to be tried again, that is now. */
export function answered() {
  if (state !== "retrying" || stop) return;
  pause = FIRST_MS;
  restart();
}

function restart() {
  clearTimeout(timer);
  timer = setTimeout(() => {
    const types = wanted().join(",");
    if (document.hidden || !readers.size || !token()) {
      stop?.abort();
      stop = null;
      following = "";
      tell("off");
    } else if (types !== following || !stop) {
      stop?.abort();
      following = types;
      stop = new AbortController();
      void follow(types.split(","), stop);
    }
  }, 20);
}

/** @param {string[]} types @param {AbortController} mine */
async function follow(types, mine) {
  if (state !== "retrying") tell("connecting");
  const query = new URLSearchParams(types.map((type) => ["type", type]));
  if (lastId) query.set("after", lastId);
  try {
    const answer = await raw(`/v1/events?${query}`, { signal: mine.signal });
    pause = FIRST_MS;
    tell("live");
    await read(answer.body.pipeThrough(new TextDecoderStream()).getReader());
    if (overflowed && stop === mine) {
      // We were too slow: what came meanwhile is not caught up with, but the gateway is there.
      overflowed = false;
      stop = null;
      timer = setTimeout(restart, FIRST_MS);
      return;
    }
    throw new Error("the stream ended");
  } catch {
    if (mine.signal.aborted || stop !== mine) return;
    stop = null;
    following = "";
    tell("retrying");
    timer = setTimeout(restart, pause * (0.75 + Math.random() / 2));
    pause = Math.min(LONGEST_MS, pause * 2);
  }
}

/** @param {ReadableStreamDefaultReader<string>} reader */
async function read(reader) {
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop() ?? "";
    for (const part of parts) take(part);
    if (!frame && (waiting.length || lost)) frame = requestAnimationFrame(deliver);
  }
}

/** @param {string} text one server-sent event */
function take(text) {
  let id = "", kind = "", data = "";
  for (const line of text.split("\n")) {
    if (line.startsWith("id: ")) id = line.slice(4);
    else if (line.startsWith("event: ")) kind = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (kind === "gap" || kind === "overflow") {
    // Too many to hear them all: what is counted is asked for anew, and we go on from now.
    lost = true;
    if (kind === "overflow") {
      lastId = "";
      overflowed = true;
    }
    return;
  }
  if (!kind || !id) return;
  lastId = id;
  waiting.push({ ...JSON.parse(data), id });
}

function deliver() {
  frame = 0;
  const events = waiting;
  const missed = lost;
  waiting = [];
  lost = false;
  for (const reader of [...readers]) {
    const mine = events.filter((event) => reader.types.some((type) => fits(type, event.type)));
    if (mine.length || missed) reader.take(mine, missed);
  }
}

/** @param {string} pattern "job.*" @param {string} type */
const fits = (pattern, type) => pattern === "*" || pattern === type || (pattern.endsWith("*") && type.startsWith(pattern.slice(0, -1)));

document.addEventListener("visibilitychange", restart);
addEventListener("online", () => {
  pause = FIRST_MS;
  restart();
});

/** A new token, or none. */
export function reconnect() {
  stop?.abort();
  stop = null;
  following = "";
  restart();
}

/**
 * Events of these types as they come, all of one frame at once. `lost`: some are missing.
 * @param {string[]} types @param {(events: Event[], lost: boolean) => void} take
 */
export function useEvents(types, take) {
  const latest = useRef(take);
  latest.current = take;
  useEffect(() => {
    if (!types.length) return undefined;
    const reader = { types, take: (events, missed) => latest.current(events, missed) };
    readers.add(reader);
    restart();
    return () => {
      readers.delete(reader);
      restart();
    };
  }, [types.join(",")]);
}

/** @returns {State} */
export function useLiveState() {
  const [now, set] = useState(state);
  useEffect(() => {
    watchers.add(set);
    set(state);
    return () => watchers.delete(set);
  }, []);
  return now;
}
