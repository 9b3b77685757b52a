// Live events as lines.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { useEvents } from "../lib/live.js";
import { ask } from "../lib/api.js";
import { href } from "../lib/route.js";
import { said, tone } from "../lib/words.js";
import { At, Empty } from "./bits.js";

/** Events once each, newest first. */
function merged(events, most) {
  const seen = new Set();
  return events.filter(({ id }) => !seen.has(id) && seen.add(id)).slice(0, most);
}

/**
 * The last events of these types, newest first, from those on that the gateway remembers; while `paused` nothing is added, and `held` counts what waits.
 * @param {string[]} types @param {number} most @param {boolean} [paused]
 */
export function useFeed(types, most, paused = false) {
  const [events, set] = useState([]);
  const [held, setHeld] = useState(0);
  const [lost, setLost] = useState(false);
  const waiting = useRef([]);
  useEffect(() => {
    const abort = new AbortController();
    const query = new URLSearchParams([["limit", String(most)], ...types.map((type) => ["type", type])]);
    ask(`/v1/overview/events?${query}`, { signal: abort.signal }).then(
      ({ events: known }) => set((old) => merged([...old, ...known], most)),
      () => undefined, // what comes from now on is shown all the same
    );
    return () => abort.abort();
  }, [types.join(",")]);
  useEvents(types, (fresh, missed) => {
    if (missed) setLost(true);
    const newest = fresh.slice(-most).reverse();
    if (paused) {
      waiting.current = [...newest, ...waiting.current].slice(0, most);
      setHeld((n) => n + fresh.length);
    } else {
      set((old) => merged([...newest, ...old], most));
    }
  });
  const flush = () => {
    set((old) => merged([...waiting.current, ...old], most));
    waiting.current = [];
    setHeld(0);
  };
  return { events, held, lost, flush };
}

/** @param {{events: any[], empty: string}} props */
export function Feed({ events, empty }) {
  if (!events.length) return html`<${Empty} title="Quiet">${empty}</${Empty}>`;
  return html`<div class="scroll"><table class="cards feed"><caption class="unseen">Events, newest first</caption>
    <thead><tr><th scope="col">At</th><th scope="col">Event</th><th scope="col">About</th><th scope="col">What</th></tr></thead>
    <tbody>${events.map((event) => html`<tr key=${event.id} data-event=${event.id} data-at=${event.at}>
      <td><${At} at=${event.at} /></td>
      <td><span class="badge"><span class="dot ${tone(event.type, event)}" aria-hidden="true"></span>${event.type}</span></td>
      <td class="wrap ${event.job_id || event.cluster ? "" : "none"}">${about(event)}</td>
      <td class="wrap">${said(event)}</td></tr>`)}</tbody></table></div>`;
}

const about = (event) =>
  event.job_id ? html`<a href=${href(["job", event.job_id], { schedd: event.schedd })}>${event.job_id}</a>` : event.cluster ? html`<a href=${href(["jobs"], { search: event.cluster })}>${event.cluster}</a>` : "";
