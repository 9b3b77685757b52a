// Machines, or all slots: sorted, filtered and cut into pages by the collector.
import { Ago, Badge, Bar, Card, Empty, Facts, Head, Name, Select, Since, Trouble, Unknown, colour } from "../parts/bits.js";
import { Pager, Table, reorder, rowsOf, useRowsOf } from "../parts/table.js";
import { Chooser, chosen } from "../parts/columns.js";
import { Download } from "../parts/download.js";
import { MachineMap, Ways } from "../parts/machine_map.js";
import { Search } from "../parts/search.js";
import { html } from "../lib/html.js";
import { count, isNumber, memory, number, percent } from "../lib/format.js";
import { change, href } from "../lib/route.js";
import { useData } from "../lib/data.js";
import { url } from "../lib/api.js";

const STATES = ["", "Claimed", "Unclaimed", "Owner", "Matched", "Preempting", "Drained", "Backfill"];
const ACTIVITIES = ["", "Busy", "Idle", "Retiring", "Suspended", "Vacating", "Killing", "Benchmarking"];
const CONDITIONS = [["", "all of them"], ["asleep", "asleep"], ["draining", "draining"]];
const options = (names, any) => names.map((name) => [name, name || any]);
const machine = (row) => html`<a href=${href(["machine", row.Machine ?? ""])}>${row.Machine}</a>`;

const SLOTS = [
  { name: "Slot", sort: "Name", kind: "wrap", cell: (row) => html`<a href=${href(["machine", row.Machine ?? ""])}><${Name} text=${row.Name} /></a>` },
  { name: "State", sort: "State", cell: (row) => html`<${Badge} state=${row.State} />${row.Offline === true && html` <span class="soft">asleep</span>`}` },
  { name: "Activity", sort: "Activity", cell: (row) => row.Activity },
  { name: "Cpus", sort: "Cpus", num: true, down: true, cell: (row) => number(row.Cpus) },
  { name: "Memory", sort: "Memory", num: true, down: true, cell: (row) => memory(row.Memory) },
  { name: "GPUs", sort: "GPUs", num: true, down: true, cell: (row) => (row.GPUs ? number(row.GPUs) : "") },
  { name: "Load", sort: "LoadAvg", num: true, down: true, cell: (row) => number(row.LoadAvg) },
  { name: "User", sort: "RemoteOwner", kind: "wrap", cell: (row) => (row.RemoteOwner ? html`<${Name} text=${row.AccountingGroup ?? row.RemoteOwner} />` : "") },
  { name: "Job", cell: (row) => (row.JobId ? html`<a href=${href(["job", row.JobId])}>${row.JobId}</a>` : "") },
  { name: "Disk", sort: "Disk", num: true, down: true, off: true, cell: (row) => memory(row.Disk / 1024) },
  { name: "Kind", off: true, cell: (row) => row.SlotType ?? "" },
  { name: "System", kind: "wrap", off: true, cell: (row) => [row.OpSysAndVer, row.Arch].filter(Boolean).join(" ") },
  { name: "Since", sort: "EnteredCurrentActivity", num: true, cell: (row) => html`<${Since} at=${row.EnteredCurrentActivity} />` },
];

const unusual = (row) => row.Offline === true || row.Draining === true;

/** What a machine is beyond the states of its slots. */
function is(row) {
  if (row.Offline === true) return html`<${Badge} state="Asleep" text=${row.MachineLastMatchTime ? "Asleep, to be woken" : "Asleep"} />`;
  return row.Draining === true ? html`<${Badge} state="Drained" text="Draining" />` : "";
}

const MACHINES = (rows) => [
  { name: "Machine", sort: "Machine", kind: "wrap", cell: machine },
  { name: "Slots by state", cell: (row) => html`<${States} states=${row.states} />` },
  ...(rows?.some(unusual) ? [{ name: "Is", cell: is }] : []),
  { name: "Cpus claimed", num: true, cell: (row) => `${number(row.states.Claimed?.cpus ?? 0)} of ${number(row.TotalCpus ?? sum(row.states))}` },
  { name: "Cpus", sort: "TotalCpus", num: true, down: true, cell: (row) => number(row.TotalCpus ?? sum(row.states)) },
  { name: "Memory", sort: "TotalMemory", num: true, down: true, cell: (row) => memory(row.TotalMemory) },
  { name: "Load", sort: "TotalLoadAvg", num: true, down: true, cell: (row) => number(row.TotalLoadAvg) },
  { name: "System", cell: (row) => [row.OpSysAndVer, row.Arch].filter(Boolean).join(" ") },
];

const sum = (states) => Object.values(states).reduce((all, one) => all + one.cpus, 0);

function States({ states }) {
  const parts = Object.entries(states).map(([label, one]) => ({ label, value: one.cpus || one.slots, tone: colour(label) }));
  const text = Object.entries(states).map(([label, one]) => `${one.slots} ${label}`).join(", ");
  return html`<span class="unseen">${text}</span><${Bar} size="thin" parts=${parts} label=${text} />`;
}

export const Machines = ({ query }) => (query.by === "map" ? html`<${MachineMap} query=${query} />` : html`<${Lines} query=${query} />`);

function Lines({ query }) {
  const by = query.by === "slot" ? "slot" : "machine";
  const order = query.order ?? (by === "slot" ? "Name" : "Machine");
  const path = by === "slot" ? "/v1/overview/slots" : "/v1/overview/machines";
  const asked = { search: query.search, order, ...(by === "slot" ? { state: query.state, activity: query.activity } : { condition: query.condition }) };
  const answer = useData(
    url(path, { ...asked, after: query.after, limit: rowsOf(query) }),
    { types: ["slot.changed", "negotiation.offline", "rooster.round", "defrag.round"], every: 10000 },
  );
  const { error } = answer;
  const { data, busy } = useRowsOf(answer, by);
  const all = by === "slot" ? SLOTS : MACHINES(data?.rows);
  return html`
    <${Head} title="Machines">
      <${Ways} by=${by} search=${query.search} />
    </${Head}>
    <div class="row filters">
      <${Search} label="Search" hint=${by === "slot" ? "part of a slot or user" : "part of a name"} value=${query.search ?? ""} onSearch=${(search) => change({ search }, true)} />
      ${by === "machine" && html`<${Select} label="Machines" value=${query.condition ?? ""} options=${CONDITIONS} onChange=${(condition) => change({ condition })} />`}
      ${by === "slot" && html`
        <${Select} label="State" value=${query.state ?? ""} options=${options(STATES, "any state")} onChange=${(state) => change({ state })} />
        <${Select} label="Activity" value=${query.activity ?? ""} options=${options(ACTIVITIES, "any activity")} onChange=${(activity) => change({ activity })} />`}
      <${Chooser} all=${all} query=${query} />
      <${Download} path=${path} query=${asked} name=${by === "slot" ? "slots" : "machines"} />
    </div>
    <${Trouble} error=${error} />
    <${Card} flush>
      <${Table} caption=${by === "slot" ? "Slots" : "Machines"} columns=${chosen(all, query)} busy=${busy} rows=${error && !data ? [] : data?.rows} id=${(row) => row.Name}
        order=${order} onOrder=${reorder} empty=${error && !data ? html`<${Unknown} />` : html`<${Empty} title=${by === "slot" ? "No such slots" : "No such machines"}>Nothing in the pool fits the search and the filters.</${Empty}>`} />
      ${data && html`<${Pager} shown=${data.rows.length} fits=${data.fits} what=${by === "slot" ? "slots" : "machines"} next=${data.next} first=${!query.after} sizes />`}
    </${Card}>
    ${data?.keepers && html`<${Keepers} keepers=${data.keepers} />`}`;
}

/** Who empties machines, and who wakes them; nothing where nobody does. */
function Keepers({ keepers: { Defrag, Rooster } }) {
  if (!Defrag.length && !Rooster.length) return null;
  const part = (value) => (isNumber(value) ? percent(value) : "");
  return html`<div class="grid below">
    ${Defrag.map((one) => html`<${Card} key=${`d ${one.Name}`} title="Draining by defrag" wide="w6" note=${[one.DefragName, !one.DefragIsActive && "another one acts"].filter(Boolean).join(", ")}><${Facts} facts=${[
      ["Last round", one.DefragLastRound > 0 && html`<${Ago} at=${one.DefragLastRound} />`], ["It said", one.DefragSaid],
      ["Machines", `${count(one.MachinesDraining)} draining, ${count(one.WholeMachines)} whole`],
      ["Drains", `${count(one.DrainSuccesses)} begun, ${count(one.DrainFailures)} refused or not answered`],
      ["Lost work", part(one.AvgDrainingBadput) && `${part(one.AvgDrainingBadput)} of the pool's cpu time`], ["Left idle", part(one.AvgDrainingUnclaimed) && `${part(one.AvgDrainingUnclaimed)} of it`],
    ]} /></${Card}>`)}
    ${Rooster.map((one) => html`<${Card} key=${`r ${one.Name}`} title="Waking by rooster" wide="w6" note=${one.RoosterIsActive ? "" : "another one acts"}><${Facts} facts=${[
      ["Last round", one.RoosterLastRound > 0 && html`<${Ago} at=${one.RoosterLastRound} />`], ["Trouble", one.RoosterProblem],
      ["Machines", `${count(one.MachinesWoken)} woken, ${count(one.MachinesNotWoken)} could not be`],
    ]} /></${Card}>`)}
  </div>`;
}
