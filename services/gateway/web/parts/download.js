// All rows that fit, not only those of this page, as a file.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { ask, url } from "../lib/api.js";
import { count } from "../lib/format.js";
import { csv, save } from "../lib/save.js";
import { toast } from "./dialog.js";
import { Menu } from "./columns.js";

const PAGE = 500;
const MOST = 100000;

/** @param {{path: string, query: Record<string, unknown>, name: string}} props path: a door that answers {rows, next}; name: of the file, without what follows the dot */
export function Download({ path, query, name }) {
  const [got, tell] = useState(-1);
  const abort = useRef(/** @type {AbortController | null} */ (null));
  useEffect(() => () => abort.current?.abort(), []);
  const fetch = async (kind) => {
    abort.current = new AbortController();
    const rows = [];
    let more = false;
    try {
      for (let after = ""; ; ) {
        tell(rows.length);
        const page = await ask(url(path, { ...query, after, limit: PAGE }), { signal: abort.current.signal });
        rows.push(...page.rows);
        after = page.next;
        more = Boolean(after) && rows.length >= MOST;
        if (!after || more) break;
      }
      if (kind === "json") save(`${name}.json`, "application/json", JSON.stringify(rows, null, 1));
      else save(`${name}.csv`, "text/csv", table(rows));
      toast(more ? `The first ${count(rows.length)} are in the file; the command roost has all of them` : `${count(rows.length)} ${name} are in the file`);
    } catch (error) {
      if (error.name !== "AbortError") toast(error.message, true);
    }
    tell(-1);
  };
  if (got >= 0) return html`<button type="button" class="button" onClick=${() => abort.current?.abort()}>Stop (${count(got)} so far)</button>`;
  return html`<${Menu} label="Download"><button type="button" class="button small" onClick=${() => fetch("csv")}>CSV, for spreadsheets</button>
    <button type="button" class="button small" onClick=${() => fetch("json")}>JSON, for programs</button></${Menu}>`;
}

/** Rows as CSV; a column for each attribute that any of them has. */
function table(rows) {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  return csv(names, rows.map((row) => names.map((name) => (typeof row[name] === "object" && row[name] !== null ? JSON.stringify(row[name]) : row[name]))));
}
