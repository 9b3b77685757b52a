// Tables: sorted by the server, a page at a time; on a phone each line becomes a card.
import { html, useRef } from "../lib/html.js";
import { count } from "../lib/format.js";
import { change, current, href } from "../lib/route.js";
import { Bones, Empty } from "./bits.js";

/**
 * @typedef {{name: string, cell: (row: any) => any, sort?: string, num?: boolean, kind?: string, down?: boolean}} Column
 *   sort: what the server calls it; down: large values first at the first click
 * @param {{caption: string, columns: Column[], rows: any[] | undefined, id: (row: any) => string, order?: string,
 *   onOrder?: (order: string) => void, empty?: any, cards?: boolean, busy?: boolean}} props
 *   busy: these are the rows of before, until those that were asked for are there
 */
export function Table({ caption, columns, rows, id, order = "", onOrder, empty, cards = true, busy = false }) {
  if (rows === undefined) return html`<div class="empty"><${Bones} lines=${8} /></div>`;
  if (!rows.length) return empty ?? html`<${Empty} title="Nothing here" />`;
  return html`${busy && html`<div class="busy" role="status" aria-label="Loading"></div>`}<div class="scroll ${busy ? "stale" : ""}" aria-busy=${busy ? "true" : undefined} tabindex=${cards ? undefined : "0"} role=${cards ? undefined : "region"} aria-label=${cards ? undefined : caption}>
    <table class=${cards ? "cards" : ""}>
      <caption class="unseen">${caption}</caption>
      <thead><tr>${columns.map((column) => html`<${Heading} key=${column.name} column=${column} order=${order} onOrder=${onOrder} />`)}</tr></thead>
      <tbody>${rows.map(
        (row) => html`<tr key=${id(row)}>${columns.map((column, place) => {
          const value = column.cell(row);
          const bare = value === "" || value === false || value === null || value === undefined || value === "–";
          const kind = `${column.num ? "num" : ""} ${column.kind ?? ""} ${bare ? "none" : ""}`;
          return place === 0
            ? html`<th scope="row" class=${kind}>${value}</th>`
            : html`<td class=${kind} data-label=${column.name}>${value}</td>`;
        })}</tr>`,
      )}</tbody>
    </table></div>`;
}

export function Heading({ column, order, onOrder }) {
  if (!column.sort || !onOrder) return html`<th scope="col" class=${column.num ? "num" : ""}>${column.name}</th>`;
  const up = order === column.sort;
  const down = order === `-${column.sort}`;
  const next = up ? `-${column.sort}` : down ? column.sort : column.down ? `-${column.sort}` : column.sort;
  return html`<th scope="col" class=${column.num ? "num" : ""} aria-sort=${up ? "ascending" : down ? "descending" : undefined}>
    <button type="button" onClick=${() => onOrder(next)}>${column.name}<span aria-hidden="true">${up ? "↑" : down ? "↓" : ""}</span></button>
  </th>`;
}

const ROWS = ["50", "200", "500"];

/** How many rows a page has, as its address says. @param {Record<string, string>} query */
export const rowsOf = (query) => Number(ROWS.includes(query.rows) ? query.rows : ROWS[0]);

/** Whether all rows are to be scrolled through, which takes room. @param {Record<string, string>} query */
export const scrolled = (query) => query.rows === "all" && matchMedia("(min-width: 761px)").matches;

/** @param {{query: Record<string, string>, all?: boolean}} props all: whether one may scroll through all rows */
export function Rows({ query, all }) {
  const options = all ? [...ROWS, "all"] : ROWS;
  const value = options.includes(query.rows) ? query.rows : ROWS[0];
  return html`<label class="row">Rows <select class="input" value=${value} onChange=${(event) => change({ rows: event.currentTarget.value === ROWS[0] ? "" : event.currentTarget.value })}>
    ${options.map((one) => html`<option key=${one} value=${one} selected=${one === value}>${one}</option>`)}</select></label>`;
}

/** What is not on this page. @param {{shown: number, fits?: number, what: string, next: any, first: boolean, sizes?: boolean | "all"}} props sizes: whether the reader says how many rows a page has, or sees all */
export function Pager({ shown, fits, what, next, first, sizes }) {
  const { path, query } = current();
  const named = (number) => (number === 1 ? what.replace(/(?<=ch)es$|s$/, "") : what);
  const total = fits === undefined || fits < 0 ? "" : ` of ${count(fits)}`;
  return html`<div class="pager">
    <span role="status">${first && !next ? `${count(fits ?? shown)} ${named(fits ?? shown)}` : `${count(shown)}${total} ${what} on this page`}</span>
    <span class="row spread">
      ${sizes && (next || !first || shown > Number(ROWS[0])) && html`<${Rows} query=${query} all=${sizes === "all"} />`}
      ${!first && html`<a class="button small" href=${href(path, { ...query, after: "" })}>First page</a>`}
      ${next ? html`<a class="button small" rel="next" href=${href(path, { ...query, after: next })}>Next page</a>` : null}
    </span>
  </div>`;
}

/** Sorting lives in the address. */
export const reorder = (order) => change({ order }, true);

/**
 * The rows of before while those of another order or filter are fetched: what was clicked is seen at once, and nothing
 * jumps. @param {{data: any, error: any}} answer @param {string} kind of another kind nothing is kept
 */
export function useRowsOf(answer, kind) {
  const kept = useRef({ kind, data: undefined });
  if (kept.current.kind !== kind) kept.current = { kind, data: undefined };
  if (answer.data) kept.current.data = answer.data;
  else if (answer.error) kept.current.data = undefined;
  return { data: kept.current.data, busy: !answer.data && kept.current.data !== undefined };
}
