// Which columns a table has: in the address, as the rest of what is seen.
import { html, useEffect, useRef } from "../lib/html.js";
import { change } from "../lib/route.js";

/** @typedef {import("./table.js").Column & {off?: boolean, roomy?: boolean}} Choosable off: shown only where it was chosen; roomy: on a phone only where it was chosen */

/** Those that are shown; the first always is. @param {Choosable[]} all @param {Record<string, string>} query */
export function chosen(all, query) {
  const named = query.columns ? new Set(query.columns.split(".")) : null;
  if (!named) return all.filter((column, place) => place === 0 || !column.off).map((column) => (column.roomy ? { ...column, kind: `${column.kind ?? ""} roomy` } : column));
  return all.filter((column, place) => place === 0 || named.has(column.name));
}

/** @param {{all: Choosable[], query: Record<string, string>}} props */
export function Chooser({ all, query }) {
  const shown = new Set(chosen(all, query).map((column) => column.name));
  const usual = all.filter((column, place) => place > 0 && !column.off).map((column) => column.name).join(".");
  const turn = (name) => {
    const next = all.slice(1).map((column) => column.name).filter((one) => (one === name ? !shown.has(one) : shown.has(one)));
    change({ columns: next.join(".") === usual ? "" : next.join(".") || all[0].name, after: query.after }, true);
  };
  return html`<${Menu} label="Columns"><fieldset><legend class="unseen">Columns</legend>
    ${all.slice(1).map((column) => html`<label class="check" key=${column.name}><input type="checkbox" checked=${shown.has(column.name)} onChange=${() => turn(column.name)} /> ${column.name}</label>`)}
    </fieldset>${query.columns && html`<button type="button" class="button small" onClick=${() => change({ columns: "", after: query.after }, true)}>The usual ones</button>`}</${Menu}>`;
}

/** A button that opens something below itself; Escape or a click elsewhere closes it. @param {{label: string, children?: any}} props */
export function Menu({ label, children }) {
  const box = useRef(null);
  useEffect(() => {
    const close = (event) => {
      if (!box.current?.open || (event.type === "pointerdown" && box.current.contains(event.target)) || (event.type === "keydown" && event.key !== "Escape")) return;
      box.current.open = false;
      if (event.type === "keydown") box.current.querySelector("summary").focus();
    };
    addEventListener("pointerdown", close);
    addEventListener("keydown", close);
    return () => {
      removeEventListener("pointerdown", close);
      removeEventListener("keydown", close);
    };
  }, []);
  return html`<details class="menu" ref=${box}><summary class="button">${label}</summary><div class="below-it">${children}</div></details>`;
}
