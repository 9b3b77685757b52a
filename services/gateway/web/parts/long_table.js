// A table that is scrolled through whatever its length: only rows that are seen are asked for, and drawn.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { ask, url } from "../lib/api.js";
import { count } from "../lib/format.js";
import { useEvents } from "../lib/live.js";
import { Bones, Trouble } from "./bits.js";
import { Heading, Rows } from "./table.js";

/** Pixels of a row: the style sheet holds them to it. */
const ROW = 36;
const PART = 100;
const BEYOND = 10;
const MOST_PARTS = 30;
const QUIET_MS = 60;
const EVERY_MS = 2000;

/**
 * @param {{caption: string, columns: import("./table.js").Column[], path: string, asked: Record<string, unknown>, query: Record<string, string>,
 *   id: (row: any) => string, order: string, onOrder: (order: string) => void, types: string[], what: string, empty: any}} props
 *   path: a door whose `after` is how many rows come before, and that tells how many `fits`
 */
export function LongTable({ caption, columns, path, asked, query, id, order, onOrder, types, what, empty }) {
  const box = useRef(null);
  const parts = useRef(/** @type {Map<number, any[]>} */ (new Map()));
  const [fits, setFits] = useState(-1);
  const [busy, setBusy] = useState(true);
  const [error, setError] = useState(null);
  const [seen, look] = useState({ first: 0, last: 40 });
  const [, draw] = useState(0);
  const whole = url(path, { ...asked, order });
  const work = useRef(/** @type {any} */ ({}));

  const wanted = () => {
    const { first, last } = work.current.seen;
    const found = [];
    for (let part = Math.floor(first / PART); part <= Math.floor(last / PART); part++) found.push(part);
    return found;
  };

  /** Ask for what is seen; again: also for what is known. */
  const fetch = async (again) => {
    const mine = work.current;
    mine.abort?.abort();
    const abort = (mine.abort = new AbortController());
    const began = performance.now();
    for (const part of wanted()) {
      if (!again && parts.current.has(part)) continue;
      try {
        const page = await ask(url(path, { ...asked, order, after: part ? part * PART : "", limit: PART }), { signal: abort.signal });
        if (mine.anew) parts.current.clear();
        mine.anew = false;
        setBusy(false);
        parts.current.delete(part);
        parts.current.set(part, page.rows);
        if (parts.current.size > MOST_PARTS) parts.current.delete(parts.current.keys().next().value);
        setFits(page.fits);
        setError(null);
        draw((n) => n + 1);
      } catch (wrong) {
        if (abort.signal.aborted) return;
        setError(wrong);
        later(EVERY_MS, true);
        return;
      }
    }
    mine.took = performance.now() - began;
    mine.abort = null;
  };

  const later = (ms, again) => {
    const mine = work.current;
    const due = performance.now() + ms;
    mine.again = mine.again || again;
    if (mine.timer && mine.due <= due) return; // or events, many a second, would put it off for ever
    clearTimeout(mine.timer);
    mine.due = due;
    mine.timer = setTimeout(() => {
      const whether = mine.again;
      mine.again = false;
      mine.timer = 0;
      if (!document.hidden) void fetch(whether);
    }, ms);
  };

  const scroll = () => {
    const { scrollTop, clientHeight } = box.current;
    const next = { first: Math.max(0, Math.floor(scrollTop / ROW) - BEYOND), last: Math.ceil((scrollTop + clientHeight) / ROW) + BEYOND };
    if (next.first === seen.first && next.last === seen.last) return;
    work.current.seen = next;
    look(next);
    if (wanted().some((part) => !parts.current.has(part))) later(QUIET_MS, false);
  };

  work.current.seen = seen;
  useEffect(() => {
    // The rows of before stay until the first of the new ones are there.
    work.current.anew = true;
    setBusy(true);
    if (box.current) box.current.scrollTop = 0;
    work.current.seen = { first: 0, last: 40 };
    look(work.current.seen);
    void fetch(true);
    return () => {
      clearTimeout(work.current.timer);
      work.current.timer = 0;
      work.current.abort?.abort();
    };
  }, [whole]);
  useEvents(types, () => work.current.abort || later(Math.max(EVERY_MS, 3 * (work.current.took ?? 0)), true));

  if (fits < 0) return error ? html`<${Trouble} error=${error} />` : html`<div class="empty"><${Bones} lines=${8} /></div>`;
  if (!fits) return empty;
  const first = Math.min(seen.first, fits);
  const last = Math.min(seen.last, fits);
  const drawn = Array.from({ length: last - first }, (_, place) => first + place);
  const gap = (rows) => rows > 0 && html`<tr class="gap" aria-hidden="true"><td colspan=${columns.length} style=${{ height: `${rows * ROW}px` }}></td></tr>`;
  return html`<${Trouble} error=${error} />${busy && html`<div class="busy" role="status" aria-label="Loading"></div>`}
    <div class="scroll long ${busy ? "stale" : ""}" ref=${box} onScroll=${scroll} tabindex="0" role="region" aria-label=${caption}>
      <table aria-rowcount=${fits + 1}>
        <caption class="unseen">${caption}</caption>
        <colgroup>${columns.map((column) => html`<col key=${column.name} style=${{ width: column.num ? "112px" : "auto" }} />`)}</colgroup>
        <thead><tr>${columns.map((column) => html`<${Heading} key=${column.name} column=${column} order=${order} onOrder=${onOrder} />`)}</tr></thead>
        <tbody>${gap(first)}${drawn.map((place) => html`<${Row} key=${place} place=${place} row=${parts.current.get(Math.floor(place / PART))?.[place % PART]} columns=${columns} id=${id} />`)}${gap(fits - last)}</tbody>
      </table></div>
    <div class="pager"><span role="status">${count(fits)} ${what}</span><span class="row spread"><${Rows} query=${query} all /></span></div>`;
}

function Row({ place, row, columns, id }) {
  if (!row) return html`<tr aria-rowindex=${place + 2} aria-busy="true"><td colspan=${columns.length}><span class="bone"></span></td></tr>`;
  return html`<tr aria-rowindex=${place + 2} key=${id(row)}>${columns.map((column, number) =>
    number === 0 ? html`<th scope="row" class=${column.num ? "num" : ""}>${column.cell(row)}</th>` : html`<td class=${column.num ? "num" : ""}>${column.cell(row)}</td>`,
  )}</tr>`;
}
