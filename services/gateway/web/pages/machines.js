// Machines, or all slots: sorted, filtered and cut into pages by the collector.
import { Badge, Bar, Card, Empty, Head, Name, Select, Since, Tabs, Trouble, colour } from "../parts/bits.js";
import { Pager, Table, reorder } from "../parts/table.js";
import { Search } from "../parts/search.js";
import { html } from "../lib/html.js";
import { count, memory, number } from "../lib/format.js";
import { change, href } from "../lib/route.js";
import { useData } from "../lib/data.js";
import { url } from "../lib/api.js";

const STATES = ["", "Claimed", "Unclaimed", "Owner", "Matched", "Preempting", "Drained", "Backfill"];
const ACTIVITIES = ["", "Busy", "Idle", "Retiring", "Suspended", "Vacating", "Killing", "Benchmarking"];
const options = (names, any) => names.map((name) => [name, name || any]);
const machine = (row) => html`<a href=${href(["machine", row.Machine ?? ""])}>${row.Machine}</a>`;

const SLOTS = [
  { name: "Slot", sort: "Name", kind: "wrap", cell: (row) => html`<a href=${href(["machine", row.Machine ?? ""])}><${Name} text=${row.Name} /></a>` },
  { name: "State", sort: "State", cell: (row) => html`<${Badge} state=${row.State} />` },
  { name: "Activity", sort: "Activity", cell: (row) => row.Activity },
  { name: "Cpus", sort: "Cpus", num: true, down: true, cell: (row) => number(row.Cpus) },
  { name: "Memory", sort: "Memory", num: true, down: true, cell: (row) => memory(row.Memory) },
  { name: "GPUs", sort: "GPUs", num: true, down: true, cell: (row) => (row.GPUs ? number(row.GPUs) : "") },
  { name: "Load", sort: "LoadAvg", num: true, down: true, cell: (row) => number(row.LoadAvg) },
  { name: "User", sort: "RemoteOwner", kind: "wrap", cell: (row) => (row.RemoteOwner ? html`<${Name} text=${row.AccountingGroup ?? row.RemoteOwner} />` : "") },
  { name: "Job", cell: (row) => (row.JobId ? html`<a href=${href(["job", row.JobId])}>${row.JobId}</a>` : "") },
  { name: "Since", sort: "EnteredCurrentActivity", num: true, cell: (row) => html`<${Since} at=${row.EnteredCurrentActivity} />` },
];

const MACHINES = [
  { name: "Machine", sort: "Machine", kind: "wrap", cell: machine },
  { name: "Slots by state", cell: (row) => html`<${States} states=${row.states} />` },
  { name: "Cpus claimed", num: true, cell: (row) => `${number(row.states.Claimed?.cpus ?? 0)} of ${number(row.TotalCpus ?? sum(row.states))}` },
  { name: "Cpus", sort: "TotalCpus", num: true, down: true, cell: (row) => number(row.TotalCpus ?? sum(row.states)) },
  { name: "Memory", sort: "TotalMemory", num: true, down: true, cell: (row) => memory(row.TotalMemory) },
  { name: "Load", sort: "LoadAvg", num: true, down: true, cell: (row) => number(row.LoadAvg) },
  { name: "System", cell: (row) => [row.OpSysAndVer, row.Arch].filter(Boolean).join(" ") },
];

const sum = (states) => Object.values(states).reduce((all, one) => all + one.cpus, 0);

function States({ states }) {
  const parts = Object.entries(states).map(([label, one]) => ({ label, value: one.cpus || one.slots, tone: colour(label) }));
  const text = Object.entries(states).map(([label, one]) => `${one.slots} ${label}`).join(", ");
  return html`<span class="unseen">${text}</span><${Bar} size="thin" parts=${parts} label=${text} />`;
}

export function Machines({ query }) {
  const by = query.by === "slot" ? "slot" : "machine";
  const order = query.order ?? (by === "slot" ? "Name" : "Machine");
  const asked = { search: query.search, order, after: query.after, limit: 50 };
  const answer = useData(
    by === "slot" ? url("/v1/overview/slots", { ...asked, state: query.state, activity: query.activity }) : url("/v1/overview/machines", asked),
    { types: ["slot.changed"], every: 10000 },
  );
  const { data, error } = answer;
  return html`
    <${Head} title="Machines">
      <${Tabs} label="Lines" tabs=${[
        { text: "Machines", to: href(["machines"], { search: query.search }), on: by === "machine" },
        { text: "Slots", to: href(["machines"], { by: "slot", search: query.search }), on: by === "slot" },
      ]} />
    </${Head}>
    <div class="row filters">
      <${Search} label="Search" hint=${by === "slot" ? "part of a slot or user" : "part of a name"} value=${query.search ?? ""} onSearch=${(search) => change({ search }, true)} />
      ${by === "slot" && html`
        <${Select} label="State" value=${query.state ?? ""} options=${options(STATES, "any state")} onChange=${(state) => change({ state })} />
        <${Select} label="Activity" value=${query.activity ?? ""} options=${options(ACTIVITIES, "any activity")} onChange=${(activity) => change({ activity })} />`}
    </div>
    <${Trouble} error=${error} />
    <${Card} flush>
      <${Table} caption=${by === "slot" ? "Slots" : "Machines"} columns=${by === "slot" ? SLOTS : MACHINES} rows=${error && !data ? [] : data?.rows} id=${(row) => row.Name}
        order=${order} onOrder=${reorder} empty=${html`<${Empty} title=${by === "slot" ? "No such slots" : "No such machines"}>Nothing in the pool fits the search and the filters.</${Empty}>`} />
      ${data && html`<${Pager} shown=${data.rows.length} fits=${data.fits} what=${by === "slot" ? "slots" : "machines"} next=${data.next} first=${!query.after} />`}
    </${Card}>`;
}
