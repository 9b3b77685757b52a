// The queues, newest job first, and what left them.
import { Ago, Badge, Bar, Card, Empty, Head, Legend, Name, Select, Since, Tabs, Trouble, Unknown, colour } from "../parts/bits.js";
import { Pager, Table, reorder, rowsOf, scrolled, useRowsOf } from "../parts/table.js";
import { LongTable } from "../parts/long_table.js";
import { Chooser, chosen } from "../parts/columns.js";
import { Download } from "../parts/download.js";
import { Search } from "../parts/search.js";
import { html } from "../lib/html.js";
import { count, duration, memory, number } from "../lib/format.js";
import { change, href } from "../lib/route.js";
import { useData } from "../lib/data.js";
import { ask, url } from "../lib/api.js";
import { confirm, toast } from "../parts/dialog.js";

export const STATUSES = ["Idle", "Running", "Held", "Suspended", "TransferringOutput", "Completed", "Removed"];
const EVENTS = ["job.*"];

export const command = (row) => row.Command ?? "";
export const submitter = (row) => row.AccountingGroup ?? row.User ?? row.Owner;
/** What to say of a job's present state beyond its name. */
export function note(row) {
  if (row.Status === "Held") return row.HoldReason ?? "";
  if (row.Status === "Running" || row.Status === "Suspended") return row.RemoteHost ?? "";
  if (row.Status === "Completed") return row.Failure ?? `exit code ${row.ExitCode ?? "–"}`;
  if (row.Status === "Removed") return row.RemoveReason ?? "";
  return row.LastRejMatchReason ?? "";
}

/** A job's state; one that failed is so by colour and word. */
export const State = ({ row }) => (row.Failure ? html`<${Badge} kind="job" state="Failed" />` : html`<${Badge} kind="job" state=${row.Status} />`);

const COLUMNS = [
  { name: "Job", sort: "job", down: true, cell: (row) => html`<a href=${href(["job", row.Id], { schedd: row.Schedd })}>${row.Id}</a>` },
  { name: "Status", sort: "status", kind: "beside", cell: (row) => html`<${State} row=${row} />` },
  { name: "Submitter", sort: "user", kind: "wrap", cell: (row) => html`<a href=${href(["jobs"], { user: submitter(row) })}><${Name} text=${submitter(row)} /></a>` },
  { name: "Batch", sort: "batch", kind: "wrap", off: true, cell: (row) => row.JobBatchName ?? "" },
  { name: "Command", sort: "command", kind: "cut", cell: (row) => html`<span title=${command(row)}>${command(row)}</span>` },
  { name: "For", sort: "since", num: true, cell: (row) => html`<${Since} at=${row.EnteredCurrentStatus} />` },
  { name: "Submitted", sort: "submitted", num: true, roomy: true, down: true, cell: (row) => html`<${Ago} at=${row.QDate} />` },
  { name: "Priority", sort: "priority", num: true, down: true, off: true, cell: (row) => number(row.JobPrio) },
  { name: "Starts", sort: "starts", num: true, down: true, off: true, cell: (row) => count(row.NumJobStarts ?? 0) },
  { name: "Cpus", sort: "cpus", num: true, roomy: true, down: true, cell: (row) => number(row.RequestCpus) },
  { name: "Memory", sort: "memory", num: true, roomy: true, down: true, cell: (row) => (row.RequestMemory === undefined ? "" : memory(row.RequestMemory)) },
  { name: "Schedd", kind: "wrap", off: true, cell: (row) => row.Schedd },
  { name: "Where, why", kind: "cut", cell: (row) => (note(row) ? html`<span title=${note(row)}>${note(row)}</span>` : "") },
];
const named = (...names) => names.map((name) => ({ ...COLUMNS.find((column) => column.name === name), sort: undefined }));
const PAST = [
  ...named("Job", "Status", "Submitter", "Batch", "Command"),
  { name: "Submitted", num: true, off: true, cell: (row) => html`<${Ago} at=${row.QDate} />` },
  { name: "Ended", num: true, cell: (row) => html`<${Ago} at=${row.CompletionDate || row.EnteredCurrentStatus} />` },
  { name: "Ran", num: true, cell: (row) => duration(row.RemoteWallClockTime) },
  { name: "Starts", num: true, roomy: true, cell: (row) => count(row.NumJobStarts) },
  ...named("Cpus", "Memory").map((column) => ({ ...column, off: true })),
  { name: "Machine", kind: "wrap", off: true, cell: (row) => row.LastRemoteHost ?? "" },
  ...named("Schedd", "Where, why"),
];
/** As jobs come without being sorted. */
const NEWEST = "-job";

/** What to say where there are no jobs: the address may leave some out. */
const nothing = (where, query) => {
  const chooses = [query.search, query.status, query.user, query.machine].some(Boolean);
  return html`<${Empty} title=${`No ${chooses ? "such " : ""}jobs in the ${where}`}>${chooses ? "Nothing fits the search and the filters." : "Submit one with roost submit."}</${Empty}>`;
};

/** Which jobs a page of this address is about, as the API takes it. */
const filters = (query) => ({ status: query.status, user: query.user, search: query.search, machine: query.machine, schedd: query.schedd });

export function Jobs({ query, level }) {
  if (query.by === "batch" && query.history !== "true") return html`<${ByBatch} query=${query} level=${level} />`;
  return html`<${OneByOne} query=${query} level=${level} />`;
}

function Lines({ query, on }) {
  const kept = { user: query.user, search: query.search, machine: query.machine };
  return html`<${Tabs} label="Jobs" tabs=${[
    { text: "Batches", to: href(["jobs"], { ...kept, by: "batch", status: query.status }), on: on === "batch" },
    { text: "In the queue", to: href(["jobs"], kept), on: on === "queue" },
    { text: "History", to: href(["jobs"], { ...kept, history: "true" }), on: on === "history" },
  ]} />`;
}

const BATCHES = [
  { name: "Cluster", cell: (row) => html`<a href=${href(["jobs"], { search: String(row.ClusterId), schedd: row.Schedd })}>${row.ClusterId}</a>` },
  { name: "Batch", kind: "wrap", cell: (row) => row.JobBatchName ?? "" },
  { name: "Submitter", kind: "wrap", cell: (row) => html`<a href=${href(["jobs"], { by: "batch", user: submitter(row) })}><${Name} text=${submitter(row)} /></a>` },
  { name: "Command", kind: "cut", cell: (row) => html`<span title=${command(row)}>${command(row)}</span>` },
  { name: "States", cell: (row) => html`<${States} states=${row.states} />` },
  { name: "Jobs", num: true, cell: (row) => count(row.jobs) },
  { name: "Submitted", num: true, cell: (row) => html`<${Ago} at=${row.QDate} />` },
];

/** A bar, and the numbers behind it. */
function States({ states }) {
  const parts = STATUSES.filter((name) => states[name]).map((name) => ({ label: name, value: states[name], tone: colour(name, "job") }));
  const text = parts.map((part) => `${count(part.value)} ${part.label.toLowerCase()}`).join(", ");
  return html`<div><${Bar} size="thin" parts=${parts} label=${text} /><span class="soft">${text}</span></div>`;
}

/** A line for each cluster, which opens its jobs. */
function ByBatch({ query, level }) {
  const answer = useData(url("/v1/overview/batches", { ...filters(query), after: query.after, limit: rowsOf(query) }), { types: EVENTS, every: 10000 });
  const { data, error } = answer;
  return html`
    <${Head} title="Jobs"><${Orders} query=${query} level=${level} refresh=${answer.refresh} /><${Lines} query=${query} on="batch" /></${Head}>
    <${Filters} query=${query} past=${false}><${Download} path="/v1/overview/batches" query=${filters(query)} name="batches" /></${Filters}>
    <${Trouble} error=${error} />
    <${Card} flush>
      <${Table} caption="Jobs in the queue by cluster" columns=${BATCHES} rows=${error && !data ? [] : data?.rows} id=${(row) => `${row.Schedd} ${row.ClusterId}`}
        empty=${error && !data ? html`<${Unknown} />` : nothing("queue", query)} />
      ${data && html`<${Pager} shown=${data.rows.length} fits=${data.fits} what="batches" next=${data.next} first=${!query.after} sizes />`}
    </${Card}>`;
}

/** Orders for all jobs that the filters show, after a question that says how many these are. */
function Orders({ query, level, refresh }) {
  if (level !== "WRITE" && level !== "ADMINISTRATOR") return null;
  return html`<button type="button" class="button" onClick=${() => orderAll(query, level, refresh)}>Order for all …</button>`;
}

const ORDERS = [["hold", "hold"], ["release", "release"], ["vacate", "vacate: idle again, to start elsewhere"], ["remove", "remove for good"]];

async function orderAll(query, level, refresh) {
  const found = await ask(url("/v1/overview/batches", { ...filters(query), limit: 1 })).catch((error) => error);
  if (found instanceof Error) return toast(found.message, true);
  if (!found.jobs) return toast("No jobs in the queue fit the search and the filters.");
  const which = [query.status && `status ${query.status}`, query.user && `of ${query.user}`, query.machine && `on ${query.machine}`, query.search && `with “${query.search}”`, query.schedd && `of schedd ${query.schedd}`].filter(Boolean).join(", ");
  return confirm({
    title: `An order for ${count(found.jobs)} ${found.jobs === 1 ? "job" : "jobs"}`,
    text: `${which || "All jobs in the queue"}; ${count(found.fits)} ${found.fits === 1 ? "cluster" : "clusters"}.${level === "ADMINISTRATOR" ? "" : " Jobs of others are left alone."} What was held can be released again; what was removed is gone.`,
    action: "Do it",
    danger: true,
    fields: [{ name: "what", label: "What to do with them", options: ORDERS }, { name: "reason", label: "Reason" }],
    then: async ({ what, reason }) => {
      const told = await ask(url("/v1/jobs/action", { schedd: query.schedd }), { method: "POST", body: { action: what, constraint: found.constraint, reason } });
      refresh();
      const results = Object.values(told);
      const done = results.filter((one) => one === "done").length;
      const others = results.length - done;
      return `${what}: ${count(done)} ${done === 1 ? "job" : "jobs"} done${others ? `, ${count(others)} not: ${[...new Set(results.filter((one) => one !== "done"))].join(", ")}` : ""}`;
    },
  });
}

function Filters({ query, past, schedds, children }) {
  return html`<div class="row filters">
      <${Search} label="Search" hint="12, 12.3, or part of a command, user or batch" value=${query.search ?? ""} onSearch=${(search) => change({ search }, true)} />
      <${Select} label="Status" value=${query.status ?? ""} options=${[["", "any status"], ...(past ? ["Failed", "Completed", "Removed"] : [...STATUSES, "Failed"]).map((name) => [name, name])]} onChange=${(status) => change({ status })} />
      ${schedds?.length > 1 && html`<${Select} label="Schedd" value=${query.schedd ?? ""} options=${[["", "all schedds"], ...schedds.map((name) => [name, name])]} onChange=${(schedd) => change({ schedd })} />`}
      ${[["user", "Submitter", "all submitters"], ["machine", "Machine", "all machines"]].map(([key, label, all]) => query[key] && html`<span class="field"><span>${label}</span><a class="button" href=${href(["jobs"], { ...query, [key]: "", after: "" })}>${query[key]} <span aria-hidden="true">×</span><span class="unseen">: show ${all}</span></a></span>`)}
      ${children}
    </div>`;
}

function OneByOne({ query, level }) {
  const past = query.history === "true";
  const order = past ? "" : (query.order ?? NEWEST);
  const long = !past && scrolled(query);
  const answer = useData(
    url("/v1/overview/jobs", { ...filters(query), history: past ? "true" : "", ...(long ? { limit: 1 } : { order: order === NEWEST ? "" : order, after: query.after, limit: rowsOf(query) }) }),
    { types: EVENTS, every: 10000 },
  );
  const { error } = answer;
  const { data, busy } = useRowsOf(answer, past ? "past" : "queue");
  const all = past ? PAST : COLUMNS;
  const none = nothing(past ? "history" : "queue", query);
  const parts = data
    ? STATUSES.filter((name) => data.totals[name]).map((name) => ({ label: name, value: data.totals[name], tone: colour(name, "job"), to: href(["jobs"], { status: name }) }))
    : [];
  return html`
    <${Head} title="Jobs">${!past && html`<${Orders} query=${query} level=${level} refresh=${answer.refresh} />`}<${Lines} query=${query} on=${past ? "history" : "queue"} /></${Head}>
    ${!past && parts.length > 0 && html`<div class="card filters"><${Bar} parts=${parts} label=${parts.map((p) => `${p.value} ${p.label}`).join(", ")} /><${Legend} parts=${parts} /></div>`}
    <${Filters} query=${query} past=${past} schedds=${data?.schedds}>
      <${Chooser} all=${all} query=${query} />
      <${Download} path="/v1/overview/jobs" query=${{ ...filters(query), history: past ? "true" : "" }} name="jobs" />
    </${Filters}>
    <${Trouble} error=${error} />
    <${Card} flush>${long
      ? html`<${LongTable} caption="Jobs in the queue" columns=${chosen(all, query)} path="/v1/overview/jobs" asked=${filters(query)} query=${query} id=${(row) => `${row.Schedd} ${row.Id}`} order=${order} onOrder=${reorder} types=${EVENTS} what="jobs" empty=${none} />`
      : html`
      <${Table} caption=${past ? "Jobs that left the queue" : "Jobs in the queue"} columns=${chosen(all, query)} rows=${error && !data ? [] : data?.rows} id=${(row) => `${row.Schedd} ${row.Id}`}
        order=${order} onOrder=${past ? undefined : reorder} busy=${busy}
        empty=${error && !data ? html`<${Unknown} />` : none} />
      ${data && html`<${Pager} shown=${data.rows.length} fits=${fits(data, query, past)} what="jobs" next=${data.next} first=${!query.after} sizes=${past || "all"} />`}`}
    </${Card}>
    ${data?.late?.length > 0 && html`<div class="below"><${Card} title="Still to come" flush note="clusters whose jobs come into the queue some at a time">
      <${Table} caption="Clusters of which jobs are still to come" columns=${LATE} rows=${data.late} id=${(row) => `${row.Schedd} ${row.ClusterId}`} /></${Card}></div>`}`;
}

/** Why no more of a cluster's jobs are in the queue. */
function pause(row) {
  if (row.JobMaterializePaused) return [row.JobMaterializePaused > 0 ? "on hold" : "stopped", row.JobMaterializePauseReason].filter(Boolean).join(": ");
  if (row.JobsPresent >= row.JobMaterializeLimit) return `as many are in the queue as max_materialize allows: ${count(row.JobMaterializeLimit)}`;
  if (row.JobsIdle + row.JobsHeld >= row.JobMaterializeMaxIdle) return `as many are idle or held as max_idle allows: ${count(row.JobMaterializeMaxIdle)}`;
  return "more come as far as the schedd's limits allow";
}

const LATE = [
  { name: "Cluster", cell: (row) => html`<a href=${href(["jobs"], { search: String(row.ClusterId), schedd: row.Schedd })}>${row.ClusterId}</a>` },
  { name: "Submitter", kind: "wrap", cell: (row) => html`<a href=${href(["jobs"], { user: submitter(row) })}><${Name} text=${submitter(row)} /></a>` },
  { name: "Command", kind: "cut", cell: (row) => html`<span title=${command(row)}>${command(row)}</span>` },
  { name: "To come", num: true, cell: (row) => `${count(row.Left)} of ${count(row.JobMaterializeItemCount)}` },
  { name: "In the queue", num: true, cell: (row) => count(row.JobsPresent) },
  { name: "Submitted", num: true, cell: (row) => html`<${Ago} at=${row.QDate} />` },
  { name: "Waits because", kind: "wrap", cell: pause },
];

/** How many there are, where the totals tell. */
function fits(data, query, past) {
  if (data.fits !== undefined) return data.fits;
  if (past || query.search || query.user || query.machine || query.schedd) return undefined;
  return query.status ? data.totals[query.status] : Object.values(data.totals).reduce((all, one) => all + one, 0);
}
