// To anything by its name: pages, jobs, machines, submitters.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { ask, url } from "../lib/api.js";
import { go, href } from "../lib/route.js";

const QUIET_MS = 150;
const EACH = 5;

/** @typedef {{kind: string, text: string, to: string}} Place */

/** What is known without asking. @param {string} words @param {{path: string, text: string}[]} pages @returns {Place[]} */
function known(words, pages) {
  const wanted = words.toLowerCase();
  const found = pages.filter((page) => page.text.toLowerCase().includes(wanted)).map((page) => ({ kind: "page", text: page.text, to: href(page.path ? [page.path] : []) }));
  if (/^\d{1,9}\.\d{1,9}$/.test(words)) found.unshift({ kind: "job", text: words, to: href(["job", words]) });
  else if (/^\d{1,9}$/.test(words)) found.unshift({ kind: "jobs of cluster", text: words, to: href(["jobs"], { search: words }) });
  if (words) found.push({ kind: "jobs with", text: words, to: href(["jobs"], { search: words }) });
  return found;
}

/** What the pool has of that name. @returns {Promise<Place[]>} */
async function asked(words, signal) {
  const query = { search: words, limit: EACH };
  const parts = await Promise.allSettled([
    ask(url("/v1/overview/machines", query), { signal }).then(({ rows }) => rows.map((row) => ({ kind: "machine", text: row.Machine, to: href(["machine", row.Machine]) }))),
    ask(url("/v1/overview/users", query), { signal }).then(({ rows }) => rows.map((row) => ({ kind: "jobs of", text: row.Name, to: href(["jobs"], { user: row.Name }) }))),
  ]);
  return parts.flatMap((part) => (part.status === "fulfilled" ? part.value : []));
}

/** @param {{pages: {path: string, text: string}[], close: () => void}} props */
export function Jump({ pages, close }) {
  const box = useRef(null);
  const [words, set] = useState("");
  const [more, add] = useState(/** @type {Place[]} */ ([]));
  const [at, move] = useState(0);
  useEffect(() => box.current.showModal(), []);
  useEffect(() => {
    add([]);
    move(0);
    if (!words) return undefined;
    const abort = new AbortController();
    const timer = setTimeout(() => asked(words, abort.signal).then((found) => abort.signal.aborted || add(found)), QUIET_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [words]);
  const found = [...known(words, pages), ...more];
  const take = (place) => {
    close();
    if (place) go(place.to);
  };
  const press = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) {
      event.preventDefault();
      move((at + step + found.length) % found.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      take(found[at]);
    }
  };
  return html`<dialog ref=${box} aria-label="Jump to" onClose=${close} onClick=${(event) => event.target === box.current && close()}>
    <div class="inner"><label class="field"><span>Jump to a page, job, machine or submitter</span>
      <input class="input" role="combobox" aria-expanded="true" aria-controls="places" aria-autocomplete="list" aria-activedescendant=${found.length ? `place-${at}` : undefined}
        autocomplete="off" spellcheck=${false} maxlength="200" value=${words} onInput=${(event) => set(event.currentTarget.value.trim())} onKeyDown=${press} /></label>
      <ul class="places" id="places" role="listbox" aria-label="Places">${found.map(
        (place, number) => html`<li key=${`${place.kind} ${place.text}`} id=${`place-${number}`} role="option" aria-selected=${number === at ? "true" : "false"} onClick=${() => take(place)}><span class="soft">${place.kind}</span> ${place.text}</li>`,
      )}</ul>
      ${found.length === 0 && html`<p class="soft" role="status">Nothing of that name</p>`}
    </div></dialog>`;
}
