// What a job writes: its standard output and error while it runs, what a spooled job brought back, and its log.
import { Card, Empty } from "./bits.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { ask, raw, url } from "../lib/api.js";
import { count } from "../lib/format.js";
import { save } from "../lib/save.js";
import { begin, follow } from "../lib/visit.js";

/** What is kept of a text, and asked for of a file: its end. */
const MOST = 512 * 1024;
const EVERY_MS = 3000;
const NAMES = { stdout: "Standard output", stderr: "Standard error", log: "Log" };

/**
 * Where the texts of this job are to be had from: "live", "spool", "log", or nowhere, with the reason.
 * @param {Record<string, any>} row @param {boolean} history
 */
function sources(row, history) {
  const runs = row.Status === "Running" || row.Status === "Suspended";
  const spooled = row.StageInFinish > 0 && !history;
  const how = runs ? "live" : spooled ? "spool" : "";
  const found = {};
  for (const [name, place] of [["stdout", row.Out], ["stderr", row.Err]]) {
    if (place && place !== "/dev/null" && how) found[name] = { how, file: String(place).split("/").pop() };
  }
  if (row.UserLog && !history) found.log = { how: "log", file: String(row.UserLog).split("/").pop() };
  return found;
}

/** @param {{row: Record<string, any>, iwd: string, history: boolean}} props iwd: where names of files begin */
export function Output({ row, iwd, history }) {
  const found = sources(row, history);
  const names = Object.keys(found);
  const [wanted, want] = useState("stdout");
  const name = names.includes(wanted) ? wanted : names[0];
  const places = [["Standard output", row.Out], ["Standard error", row.Err], ["Log", row.UserLog]].filter(([, place]) => place && place !== "/dev/null");
  const elsewhere = html`${places.length > 0
    ? html`<${Empty} title=${row.Status === "Idle" || row.Status === "Held" ? "It has not written anything yet" : "Its files are at its access point"}>
        <dl class="facts">${places.map(([label, place]) => html`<dt>${label}</dt><dd><code>${iwd && !place.startsWith("/") ? `${iwd.replace(/\/$/, "")}/${place}` : place}</code></dd>`)}</dl></${Empty}>`
    : html`<${Empty} title="It keeps no output">Its submit file names no output, error or log.</${Empty}>`}`;
  return html`<${Card} title="Output" note=${name ? `${found[name].how === "live" ? "as it is written" : found[name].how === "spool" ? "brought back to the access point" : "events of the job"}` : ""}>
    ${name
      ? html`<div class="row filters" role="group" aria-label="What to show">
            ${names.map((one) => html`<button key=${one} type="button" class="button small" aria-pressed=${one === name} onClick=${() => want(one)}>${NAMES[one]}</button>`)}
          </div><${Text} key=${`${row.Id} ${name} ${found[name].how}`} row=${row} name=${name} source=${found[name]} />`
      : elsewhere}
  </${Card}>`;
}

function Text({ row, name, source }) {
  const [shown, set] = useState({ text: "", cut: false, note: "", error: "", asked: false });
  const [following, setFollow] = useState(true);
  const [wrap, setWrap] = useState(true);
  const [wanted, search] = useState("");
  const box = useRef(null);

  useEffect(() => {
    const abort = new AbortController();
    const decoder = new TextDecoder();
    let kept = "";
    let cut = false;
    const put = (more, note = "") => {
      kept += more;
      if (kept.length > MOST) {
        kept = kept.slice(kept.length - MOST);
        kept = kept.slice(kept.indexOf("\n") + 1);
        cut = true;
      }
      set({ text: kept, cut, note, error: "" });
    };
    const replace = (text, whole) => {
      kept = text;
      cut = !whole;
      set({ text: kept, cut, note: "", error: "", asked: true });
    };
    const work = source.how === "live" ? live(row, name, decoder, put, abort.signal) : file(row, name, source, replace, abort.signal);
    work.catch((error) => abort.signal.aborted || set((old) => ({ ...old, error: error.message ?? String(error) })));
    return () => abort.abort();
  }, []);

  useEffect(() => {
    if (following && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [shown.text, following, wanted]);

  const lines = shown.text.split("\n");
  const key = wanted.toLowerCase();
  const hits = key ? lines.filter((line) => line.toLowerCase().includes(key)) : lines;
  const keep = () => save(`${row.Id}.${name === "log" ? "log" : name === "stdout" ? "out" : "err"}`, "text/plain", shown.text);
  const none = source.how === "spool" ? (shown.asked ? "It wrote nothing." : "") : "Nothing yet.";
  return html`<div class="stack">
    <div class="row filters">
      <label class="field"><span>Only lines with</span><input class="input" type="search" value=${wanted} onInput=${(event) => search(event.currentTarget.value)} autocomplete="off" spellcheck=${false} /></label>
      <label class="check"><input type="checkbox" checked=${following} onChange=${(event) => setFollow(event.currentTarget.checked)} /> Follow</label>
      <label class="check"><input type="checkbox" checked=${wrap} onChange=${(event) => setWrap(event.currentTarget.checked)} /> Wrap lines</label>
      <button type="button" class="button small" onClick=${keep} disabled=${!shown.text}>Download</button>
      ${key && html`<span class="soft" role="status">${count(hits.length)} of ${count(lines.length)} lines</span>`}
    </div>
    ${shown.error && html`<p class="notice bad" role="alert">${shown.error}</p>`}
    ${shown.cut && html`<p class="soft">The beginning is left out.</p>`}
    <pre ref=${box} class="output ${wrap ? "" : "nowrap"}" tabindex="0" role="region" aria-label=${NAMES[name]}>${hits.join("\n") || (key ? "" : none)}</pre>
    ${shown.note && html`<p class="soft">${shown.note}</p>`}
  </div>`;
}

/** What the running job writes, as it does. */
async function live(row, name, decoder, put, signal) {
  const visit = await begin(row, { kind: "tail", stream: name, follow: true, max_bytes: MOST }, signal);
  const how = await follow(visit, (kind, data) => {
    if (kind === "e") throw new Error(new TextDecoder().decode(data).trim());
    put(decoder.decode(data, { stream: true }));
  }, signal);
  put("", how ? how.reason || "The job has ended." : "The connection to the job has ended.");
}

/** A file of the access point: its end, asked for again as long as the page is looked at. */
async function file(row, name, source, replace, signal) {
  const job = `/v1/jobs/${encodeURIComponent(row.Id)}`;
  const query = { schedd: row.Schedd };
  for (let before = -1; !signal.aborted; await pause(EVERY_MS, signal)) {
    if (document.hidden && before >= 0) continue;
    let size = MOST + 1;
    if (name !== "log") {
      const { files } = await ask(url(`${job}/output`, query), { signal });
      const found = files.find((one) => one.name === source.file);
      size = found?.size ?? 0;
      if (size === before) continue;
      before = size;
      if (!size) {
        replace("", true);
        continue;
      }
    } else before = 0;
    const path = name === "log" ? `${job}/log` : `${job}/output/${encodeURIComponent(source.file)}`;
    const answer = await raw(url(path, query), { method: "GET", signal, headers: { Range: `bytes=-${MOST}` } });
    const range = /bytes (\d+)-/.exec(answer.headers.get("Content-Range") ?? "");
    replace(await answer.text(), !range || range[1] === "0");
  }
}

const pause = (ms, signal) =>
  new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });
