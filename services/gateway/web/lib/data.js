// Answers of the gateway that stay fresh: asked for again when events say that something changed, at most once a second,
// and now and then without; never while nobody looks at the tab.
import { ApiError, ask } from "./api.js";
import { useEffect, useRef, useState } from "./html.js";
import { answered, useEvents } from "./live.js";

const AT_MOST_EVERY_MS = 1000;
const EVERY_MS = 15000;
const RETRY_MS = 2000;
/** The last answers, to be shown at once when somebody comes back to a page. */
const seen = new Map();
/** When each of them came, in seconds since 1970. @type {Map<string, number>} */
const times = new Map();

/**
 * @param {string} path of the API with its query; empty: nothing is asked
 * @param {{types?: string[], every?: number}} [options] types of events after which the answer may be another one; every:
 *   milliseconds after which it is asked for again in any case, 0: never
 * @returns {{data: any, error: ApiError | null, loading: boolean, refresh: () => void}} the error has `at` where an older answer is shown: when that came
 */
export function useData(path, options = {}) {
  const { types = [], every = EVERY_MS } = options;
  const [shown, set] = useState({ path, data: seen.get(path), error: null, loading: true });
  const work = useRef({ path: "", due: 0, busy: false, again: false, took: 0, last: 0, abort: null });

  const later = (ms) => {
    const mine = work.current;
    clearTimeout(mine.due);
    mine.due = ms === null ? 0 : setTimeout(run, ms);
  };

  const run = async () => {
    const mine = work.current;
    if (!mine.path || document.hidden) return;
    if (mine.busy) {
      mine.again = true;
      return;
    }
    mine.busy = true;
    mine.again = mine.failed = false;
    const asked = mine.path;
    const began = performance.now();
    mine.abort = new AbortController();
    try {
      const data = await ask(asked, { signal: mine.abort.signal });
      if (mine.path !== asked) return;
      keep(asked, data);
      times.set(asked, Date.now() / 1000);
      set({ path: asked, data, error: null, loading: false });
      answered();
    } catch (error) {
      if (mine.path !== asked || error.name === "AbortError") return;
      const told = error instanceof ApiError ? error : new ApiError(0, "unreachable", "the gateway does not answer");
      told.at = times.get(asked);
      set((old) => ({ path: asked, data: old.path === asked ? old.data : undefined, error: told, loading: false }));
      mine.failed = told.status === 0 || told.status >= 500;
    } finally {
      if (mine.path === asked) {
        mine.busy = false;
        mine.last = performance.now();
        mine.took = mine.last - began;
        if (mine.again) later(wait(mine));
        else if (mine.failed || every) later(mine.failed ? RETRY_MS : every);
      }
    }
  };

  useEffect(() => {
    const mine = work.current;
    mine.path = path;
    mine.busy = false;
    set((old) => (old.path === path ? old : { path, data: seen.get(path), error: null, loading: true }));
    void run();
    const look = () => document.hidden || run();
    document.addEventListener("visibilitychange", look);
    return () => {
      mine.path = "";
      mine.abort?.abort();
      later(null);
      document.removeEventListener("visibilitychange", look);
    };
  }, [path]);

  useEvents(types, () => {
    const mine = work.current;
    if (mine.busy) mine.again = true;
    else later(wait(mine));
  });

  return { data: shown.path === path ? shown.data : seen.get(path), error: shown.path === path ? shown.error : null, loading: shown.loading, refresh: run };
}

/** What takes the pool long is asked for more rarely. */
const wait = (mine) => Math.max(0, mine.last + Math.max(AT_MOST_EVERY_MS, 3 * mine.took) - performance.now());

function keep(path, data) {
  seen.delete(path);
  seen.set(path, data);
  if (seen.size > 60) {
    const oldest = seen.keys().next().value;
    seen.delete(oldest);
    times.delete(oldest);
  }
}

/** The time now in seconds, so that what shows an age is drawn anew. @param {number} every milliseconds */
export function useNow(every = 1000) {
  const [now, set] = useState(Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || set(Date.now() / 1000), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}
