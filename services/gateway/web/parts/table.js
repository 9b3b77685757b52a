// Tables: sorted by the server, a page at a time; on a phone each line becomes a card.
import { html } from "../lib/html.js";
import { count } from "../lib/format.js";
import { change, current, href } from "../lib/route.js";
import { Bones, Empty } from "./bits.js";

/**
 * @typedef {{name: string, cell: (row: any) => any, sort?: string, num?: boolean, kind?: string, down?: boolean}} Column
 *   sort: what the server calls it; down: large values first at the first click
 * @param {{caption: string, columns: Column[], rows: any[] | undefined, id: (row: any) => string, order?: string,
 *   onOrder?: (order: string) => void, empty?: any, cards?: boolean}} props
 */
export function Table({ caption, columns, rows, id, order = "", onOrder, empty, cards = true }) {
  if (rows === undefined) return html`<div class="empty"><${Bones} lines=${8} /></div>`;
  if (!rows.length) return empty ?? html`<${Empty} title="Nothing here" />`;
  return html`<div class="scroll" tabindex=${cards ? undefined : "0"} role=${cards ? undefined : "region"} aria-label=${cards ? undefined : caption}>
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

function Heading({ column, order, onOrder }) {
  if (!column.sort || !onOrder) return html`<th scope="col" class=${column.num ? "num" : ""}>${column.name}</th>`;
  const up = order === column.sort;
  const down = order === `-${column.sort}`;
  const next = up ? `-${column.sort}` : down ? column.sort : column.down ? `-${column.sort}` : column.sort;
  return html`<th scope="col" class=${column.num ? "num" : ""} aria-sort=${up ? "ascending" : down ? "descending" : undefined}>
    <button type="button" onClick=${() => onOrder(next)}>${column.name}<span aria-hidden="true">${up ? "↑" : down ? "↓" : ""}</span></button>
  </th>`;
}

/** What is not on this page. @param {{shown: number, fits?: number, what: string, next: any, first: boolean}} props */
export function Pager({ shown, fits, what, next, first }) {
  const { path, query } = current();
  const named = (number) => (number === 1 ? what.replace(/s$/, "") : what);
  const total = fits === undefined || fits < 0 ? "" : ` of ${count(fits)}`;
  return html`<div class="pager">
    <span role="status">${first && !next ? `${count(fits ?? shown)} ${named(fits ?? shown)}` : `${count(shown)}${total} ${what} on this page`}</span>
    <span class="row spread">
      ${!first && html`<a class="button small" href=${href(path, { ...query, after: "" })}>First page</a>`}
      ${next ? html`<a class="button small" rel="next" href=${href(path, { ...query, after: next })}>Next page</a>` : null}
    </span>
  </div>`;
}

/** Sorting lives in the address. */
export const reorder = (order) => change({ order }, true);
