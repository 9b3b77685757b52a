// One job: what happened to it, why it waits, and what its owner may do with it.
import { Ago, At, Card, Empty, Facts, Head, Part, Recorded, Since, colour } from "../parts/bits.js";
import { confirm, toast } from "../parts/dialog.js";
import { ask, url } from "../lib/api.js";
import { Fragment, html, useState } from "../lib/html.js";
import { count, duration, memory, moment, number, progress } from "../lib/format.js";
import { href } from "../lib/route.js";
import { useData } from "../lib/data.js";
import { said, tone } from "../lib/words.js";
import { Output } from "../parts/output.js";
import { Shell } from "../parts/shell.js";
import { Use } from "../parts/use.js";
import { Dag } from "../parts/dag.js";
import { Table } from "../parts/table.js";
import { State, command, note, submitter } from "./jobs.js";

/** What the states of the journal's spans are drawn as. */
const SPAN = { idle: "s-Owner", starting: "s-Matched", running: "s-Running", held: "s-Held", suspended: "s-Suspended", completed: "s-Completed", removed: "s-Removed" };
const ACTIONS = {
  hold: { text: "Hold", on: ["Idle", "Running", "Suspended", "TransferringOutput"], what: "It does not run until it is released." },
  release: { text: "Release", on: ["Held"], what: "It is idle again and may be matched." },
  vacate: { text: "Vacate", on: ["Running", "Suspended"], what: "It leaves its machine, and is idle again." },
  remove: { text: "Remove", on: ["Idle", "Running", "Held", "Suspended", "TransferringOutput", "Completed"], what: "It leaves the queue for good.", danger: true },
};

export function Job({ path, query, level }) {
  const id = path[1] ?? "";
  const types = ["job.*"];
  const answer = useData(url(`/v1/overview/jobs/${encodeURIComponent(id)}`, { schedd: query.schedd }), { types, every: 10000 });
  const row = answer.data?.job;
  const may = level === "WRITE" || level === "ADMINISTRATOR";
  return html`
    <${Head} title=${`Job ${id}`} crumb=${html`<a href=${href(["jobs"], { history: answer.data?.history ? "true" : "" })}>Jobs</a>`} sub=${row && html`<${State} row=${row} /> ${standing(row)}, of <a href=${href(["jobs"], { user: submitter(row), history: answer.data.history ? "true" : "" })}>${submitter(row)}</a>${row.RoostRerunOf && html`, another try of <a href=${href(["job", row.RoostRerunOf])}>${row.RoostRerunOf}</a>`}`}>
      ${row && html`<button type="button" class="button" onClick=${() => copy(row.Id)}>Copy id</button>`}
      ${may && row && !answer.data.history && html`<button type="button" class="button" onClick=${() => edit(row, answer.data.ad, answer.refresh)}>Edit …</button>`}
      ${may && row && answer.data.history && row.Status === "Completed" && html`<button type="button" class="button" onClick=${() => again(row)}>Run again</button>`}
      ${may && row && !answer.data.history && Object.entries(ACTIONS).filter(([, action]) => action.on.includes(row.Status)).map(
        ([name, action]) => html`<button key=${name} type="button" class="button ${action.danger ? "danger" : ""}" onClick=${() => act(name, action, row, answer.refresh)}>${action.text}</button>`,
      )}
    </${Head}>
    <${Part} answer=${answer} lines=${8}>${(data) => html`<${Shown} data=${data} id=${id} may=${may} />`}</${Part}>`;
}

/** The text that an attribute is, as the ad has it in quotes; empty where it is none. */
function text(value) {
  try {
    return String(JSON.parse(value ?? '""'));
  } catch {
    return "";
  }
}

/** The queue or the history; of a job that ended and stays in the queue, why, and what ends it. */
function place(row, history) {
  if (history) return "in the history";
  if (row.Status !== "Completed") return "in the queue";
  if (!(row.StageInFinish > 0)) return "in the queue, as long as its leave_in_queue says";
  return html`in the queue for ten days from its end, to have its files fetched: <code>roost transfer-data ${row.Id}</code>; <code>roost rm ${row.Id}</code> takes it out`;
}

/** How long it has been as it is; of a job that ended, when that was and how. */
function standing(row) {
  if (row.Status === "Completed") return html`<${Ago} at=${row.CompletionDate || row.EnteredCurrentStatus} />, ${row.Failure ?? `exit code ${row.ExitCode ?? "–"}`}`;
  if (row.Status === "Removed") return html`<${Ago} at=${row.EnteredCurrentStatus} />`;
  return html`for <${Since} at=${row.EnteredCurrentStatus} />`;
}

function Shown({ data, id, may }) {
  const { job: row, ad, history } = data;
  const host = row.RemoteHost ?? row.LastRemoteHost;
  const story = useData(url(`/v1/overview/jobs/${encodeURIComponent(id)}/story`, { schedd: row.Schedd }), { types: ["job.*"], every: 15000 });
  return html`<div class="grid">
    ${row.Status === "Held" && html`<div class="w12 notice bad">${row.HoldReason ?? "held"} (code ${row.HoldReasonCode ?? "–"})</div>`}
    ${row.Failure && html`<div class="w12 notice bad">It failed: ${row.Failure}</div>`}
    ${row.Status === "Idle" && html`<${Why} id=${id} schedd=${row.Schedd} />`}
    ${ad.DAG_NodesTotal && html`<${Dag} ad=${ad} schedd=${row.Schedd} />`}
    <${Card} title="Timeline" note="from the journal">
      <${Recorded} answer=${story} what="The whole story of a job" instead=${html`<${Known} row=${row} />`}>${(found) => html`<${Story} story=${found} failed=${Boolean(row.Failure)} />`}</${Recorded}>
    </${Card}>
    ${ad.JobUniverse !== "7" && html`<${Output} row=${row} iwd=${text(ad.Iwd)} history=${history} />`}
    ${may && row.Status === "Running" && !["7", "9"].includes(ad.JobUniverse) && html`<${Shell} key=${`${row.Id} ${row.NumJobStarts}`} row=${row} />`}
    <${Card} title="The job" wide="w6"><${Facts} facts=${[
      ["Command", html`<code>${command(row)}</code>`], ["Submitter", submitter(row)], ["Submitted", html`<${At} at=${row.QDate} />`],
      ["Cpus", number(row.RequestCpus)], ["Memory", row.RequestMemory !== undefined && memory(row.RequestMemory)], ["Priority in the queue", row.JobPrio],
      ["DAG", ad.DAGManJobId && html`<a href=${href(["job", `${ad.DAGManJobId}.0`], { schedd: row.Schedd })}>${ad.DAGManJobId}.0</a>`],
      ["Batch", row.JobBatchName], ["Schedd", row.Schedd],
    ]} /></${Card}>
    <${Card} title="How it runs" wide="w6"><${Facts} facts=${[
      ["Status", html`<${State} row=${row} />`], ["Machine", host && html`<a href=${href(["machine", host.split("@").pop()])}>${host}</a>`],
      ["Started", row.JobCurrentStartDate && html`<${At} at=${row.JobCurrentStartDate} />`], ["Starts", count(row.NumJobStarts)], ["Ran", row.Status === "Running" ? html`<${Since} at=${row.JobCurrentStartDate} />` : duration(row.RemoteWallClockTime)],
      ...["Input", "Output"].map((way) => [`${way} files`, travelling(ad, way)]),
      ["Ended", row.CompletionDate ? html`<${At} at=${row.CompletionDate} />` : ""], ["Exit", row.Failure ? html`<b class="bad">${row.Failure}</b>` : row.Status === "Completed" ? `code ${row.ExitCode ?? "–"}` : ""],
      ["Removed", row.RemoveReason], ["Where", place(row, history)],
    ]} /></${Card}>
    <${Use} use=${data.use} running=${row.Status === "Running"} ran=${row.NumJobStarts > 0} id=${row.Id} />
    <${Siblings} row=${row} history=${history} />
    <${Attributes} ad=${ad} />
  </div>`;
}

/** How far its files are that travel now. */
function travelling(ad, way) {
  const [done, total, rate] = ["Done", "Total", "PerSecond"].map((what) => Number(ad[`Transfer${way}Bytes${what}`]));
  return Number.isNaN(done) ? "" : html`${progress(done, total, rate)}${total > 0 && html` <progress max=${total} value=${Math.min(done, total)} aria-label=${`${way} files`}></progress>`}`;
}

/** Why it waits, from the negotiator. */
function Why({ id, schedd }) {
  const answer = useData(url("/v1/analysis", { ids: id, schedd }), { types: ["negotiation.cycle"], every: 20000 });
  return html`<${Card} title="Why it waits" note="asked of the negotiator">
    <${Part} answer=${answer} lines=${4}>${(data) => {
      const report = data.jobs[0];
      if (!report) return html`<${Empty} title="Nothing to tell">The job has just left the queue.</${Empty}>`;
      return html`<div class="stack">
        <p><b>${report.verdict}</b></p>
        ${report.last?.reason && html`<p class="soft">Last cycle that looked at it (<${Ago} at=${report.last.at} />): ${report.last.reason}</p>`}
        ${report.suggestions?.length > 0 && html`<div><h3>What would help</h3><ul>${report.suggestions.map((one) => html`<li><b>+${count(one.gains)} ${one.gains === 1 ? "slot" : "slots"}</b>: ${one.changes.map((each, place) => html`${place > 0 && " and "}<${Change} change=${each} />`)}</li>`)}</ul></div>`}
        ${report.terms?.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Requirements, part by part"><table class="cards"><caption class="unseen">Requirements, part by part</caption>
          <thead><tr><th scope="col">What the job requires</th><th scope="col" class="num">Slots that fit</th><th scope="col" class="num">with those above</th></tr></thead>
          <tbody>${report.terms.map((term) => html`<tr><td class="wrap"><code>${term.text}</code></td><td class="num" data-label="Slots that fit">${count(term.alone)}</td><td class="num" data-label="with those above">${count(term.together)}</td></tr>`)}</tbody></table></div>`}
      </div>`;
    }}</${Part}></${Card}>`;
}

/** One change that would let more slots take the job. */
const Change = ({ change }) =>
  change.action === "set"
    ? html`<code>${change.what} = ${change.to}</code> (it is <code>${change.was}</code>)`
    : change.action === "change"
      ? html`<code>${change.to}</code> instead of <code>${change.what}</code>`
      : html`without <code>${change.what}</code>`;

/** Without a journal: what the ad itself remembers. */
function Known({ row }) {
  const steps = [
    ["submitted", row.QDate, "s-Owner"],
    ["started", row.JobCurrentStartDate, "s-Running"],
    [row.Status?.toLowerCase(), row.EnteredCurrentStatus, colour(row.Status, "job")],
    ["completed", row.CompletionDate, "s-Completed"],
  ].filter(([, at], place, all) => at > 0 && all.findIndex(([, other]) => other === at) === place);
  return html`<ul class="steps">${steps.map(([text, at, dot]) => html`<li><${At} at=${at} /><span class="badge"><span class="dot ${dot}" aria-hidden="true"></span>${text}</span></li>`)}</ul>`;
}

function Story({ story, failed }) {
  const spans = story.spans ?? [];
  const events = story.events ?? [];
  const last = events.findLast((event) => event.type === "job.ended");
  const hours = story.hours ?? [];
  const whole = spans.reduce((all, span) => all + ((span.end ?? Date.now() / 1000) - span.start), 0) || 1;
  const causes = new Map();
  for (const span of spans) for (const cause of span.causes ?? []) {
    const known = causes.get(cause.code) ?? { code: cause.code, text: cause.text || cause.code, seconds: 0 };
    known.seconds += cause.seconds;
    causes.set(cause.code, known);
  }
  const waited = [...causes.values()].sort((a, b) => b.seconds - a.seconds);
  // Events, and what it waited for after each, in the order of time.
  const steps = [
    ...events.map((event) => ({ at: event.at, event })),
    ...spans.flatMap((span) => (span.causes ?? []).map((cause) => ({ at: span.start, cause }))),
  ].sort((a, b) => Math.round(a.at * 1000) - Math.round(b.at * 1000) || Number(Boolean(a.cause)) - Number(Boolean(b.cause)));
  const codes = [...new Set(hours.flatMap((hour) => Object.keys(hour.seconds ?? {})))];
  return html`<div class="stack">
    ${spans.length > 0 && html`<div class="timeline" role="img" aria-label=${spans.map((span) => `${span.state} ${duration((span.end ?? Date.now() / 1000) - span.start)}`).join(", then ")}>
      ${spans.map((span) => html`<span key=${span.start} class=${SPAN[span.state] ?? "s-Unknown"} style=${{ flexGrow: Math.max(0.004, ((span.end ?? Date.now() / 1000) - span.start) / whole) }} title=${`${span.state} from ${moment(span.start)} for ${duration((span.end ?? Date.now() / 1000) - span.start)}`}></span>`)}</div>
      <ul class="legend">${[...new Set(spans.map((span) => span.state))].map((state) => html`<li><span class="badge"><span class="dot ${SPAN[state] ?? "s-Unknown"}" aria-hidden="true"></span>${state} <b>${duration(spans.filter((span) => span.state === state).reduce((all, span) => all + ((span.end ?? Date.now() / 1000) - span.start), 0))}</b></span></li>`)}</ul>`}
    ${waited.length > 0 && html`<div><h3>What it waited for, in all</h3><ul class="steps">${waited.map((cause) => html`<li><span>${duration(cause.seconds)}</span><span>${cause.text}</span></li>`)}</ul></div>`}
    ${events.length > 0 && html`<div><h3>What happened</h3><ul class="steps">${steps.map(({ at, event, cause }) => (event
      ? html`<li><${At} at=${at} /><span class="badge"><span class="dot ${tone(event.type, { failed: failed && event === last })}" aria-hidden="true"></span>${event.text || said(event)}</span></li>`
      : html`<li><span class="soft">waited ${duration(cause.seconds)}</span><span class="soft">${cause.text}</span></li>`))}</ul></div>`}
    ${codes.length > 0 && html`<details><summary>Hour by hour</summary><div class="scroll" tabindex="0" role="region" aria-label="Hour by hour"><table><caption class="unseen">Waiting hour by hour, by cause</caption>
      <thead><tr><th scope="col">Hour</th>${codes.map((code) => html`<th scope="col" class="num">${causes.get(code)?.text ?? code}</th>`)}</tr></thead>
      <tbody>${hours.map((hour) => html`<tr><th scope="row">${moment(hour.start)}</th>${codes.map((code) => html`<td class="num">${hour.seconds[code] ? duration(hour.seconds[code]) : ""}</td>`)}</tr>`)}</tbody></table></div></details>`}
    ${!spans.length && !events.length && html`<${Empty} title="Nothing recorded of this job" />`}
  </div>`;
}

const SIBLINGS = [
  { name: "Job", cell: (row) => html`<a href=${href(["job", row.Id], { schedd: row.Schedd })}>${row.Id}</a>` },
  { name: "Status", cell: (row) => html`<${State} row=${row} />` },
  { name: "Command", kind: "cut", cell: (row) => html`<span title=${command(row)}>${command(row)}</span>` },
  { name: "Where, why", kind: "cut", cell: (row) => (note(row) ? html`<span title=${note(row)}>${note(row)}</span>` : "") },
];
const MOST_SIBLINGS = 8;

/** Other jobs of its cluster, in the queue and out of it. */
function Siblings({ row, history }) {
  const cluster = String(row.ClusterId);
  const ask = (past) => url("/v1/overview/jobs", { search: cluster, schedd: row.Schedd, history: past ? "true" : "", limit: MOST_SIBLINGS + 1 });
  const queued = useData(ask(false), { types: ["job.*"], every: 20000 });
  const gone = useData(ask(true), { types: ["job.*"], every: 20000 });
  const found = [...(queued.data?.rows ?? []), ...(gone.data?.rows ?? [])].filter((one) => one.Id !== row.Id);
  if (!found.length) return null;
  const all = (past, text) => html`<a href=${href(["jobs"], { search: cluster, schedd: row.Schedd, history: past ? "true" : "" })}>${text}</a>`;
  return html`<${Card} title=${`Others of cluster ${cluster}`} note=${row.JobBatchName ?? ""} flush side=${html`${all(false, "in the queue")} · ${all(true, "in the history")}`}>
    <${Table} caption=${`Other jobs of cluster ${cluster}`} columns=${SIBLINGS} rows=${found.slice(0, MOST_SIBLINGS)} id=${(one) => one.Id} /></${Card}>`;
}

function Attributes({ ad }) {
  const [wanted, set] = useState("");
  const found = Object.entries(ad).filter(([name, value]) => `${name} ${value}`.toLowerCase().includes(wanted.toLowerCase()));
  return html`<${Card} title="Attributes" note=${count(Object.keys(ad).length)}>
    <details><summary>All of the job's ad</summary>
      <label class="field"><span>Only those with</span><input class="input" type="search" value=${wanted} onInput=${(event) => set(event.currentTarget.value)} autocomplete="off" spellcheck=${false} /></label>
      <pre tabindex="0" role="region" aria-label="Attributes of the job">${found.map(([name, value]) => html`<${Fragment} key=${name}>${name} = ${value}${"\n"}</${Fragment}>`)}</pre>
    </details></${Card}>`;
}

/** What people change most; the ad has the others. */
const EDITED = ["RequestCpus", "RequestMemory", "RequestDisk", "JobPrio", "Requirements", "Rank"];

const edit = (row, ad, refresh) =>
  confirm({
    title: `Change job ${row.Id}`,
    text: "A job that runs goes on as it is; what is changed counts from its next start.",
    action: "Change",
    fields: [
      { name: "name", label: "Attribute", options: EDITED.map((name) => [name, `${name} = ${ad[name] ?? "undefined"}`]) },
      { name: "value", label: "New value: an expression, texts in double quotes; memory in MiB, disk in KiB", required: true },
    ],
    then: async ({ name, value }) => {
      const told = await ask(url("/v1/jobs/edit", { schedd: row.Schedd }), { method: "POST", body: { ids: [row.Id], attributes: { [name]: value } } });
      const said = told[row.Id];
      if (said !== "done" && said !== "already") throw new Error(`the schedd says: ${said ?? "nothing"}`);
      refresh();
      return `${name} of job ${row.Id} is ${value}`;
    },
  });

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast(`Copied ${text}`);
  } catch {
    toast(`This browser lets no page copy here; the id is ${text}`, true);
  }
}

const again = (row) =>
  confirm({
    title: `Run job ${row.Id} again?`,
    text: "It is submitted once more as it was, and gets a new number.",
    action: "Run again",
    then: async () => {
      const told = await ask(url(`/v1/jobs/${encodeURIComponent(row.Id)}/rerun`, { schedd: row.Schedd }), { method: "POST", body: {} });
      location.hash = href(["job", `${told.cluster}.${told.first_proc}`], { schedd: told.schedd });
      return `Job ${row.Id} runs again as ${told.cluster}.${told.first_proc}`;
    },
  });

const act = (name, action, row, refresh) =>
  confirm({
    title: `${action.text} job ${row.Id}?`,
    text: action.what,
    action: action.text,
    danger: action.danger,
    fields: [{ name: "reason", label: "Reason" }],
    then: async ({ reason }) => {
      const told = await ask(url("/v1/jobs/action", { schedd: row.Schedd }), { method: "POST", body: { action: name, ids: [row.Id], reason } });
      const said = told[row.Id];
      refresh();
      if (said !== "done" && said !== "already") throw new Error(`the schedd says: ${said ?? "nothing"}`);
      return `Job ${row.Id}: ${name} ${said}`;
    },
  });
