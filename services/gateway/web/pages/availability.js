// Who leads, who could, and how leadership moved.
import { Ago, At, Card, Empty, Head, Part, Recorded } from "../parts/bits.js";
import { Table } from "../parts/table.js";
import { html } from "../lib/html.js";
import { duration, number } from "../lib/format.js";
import { useData } from "../lib/data.js";

const HADS = [
  { name: "HAD", kind: "wrap", cell: (row) => row.had },
  { name: "State", cell: (row) => html`<span class="badge"><span class="dot ${row.silent ? "s-Held" : /leader/i.test(row.state) ? "s-Completed" : "s-Unclaimed"}" aria-hidden="true"></span>${row.silent ? "silent" : row.state}</span>` },
  { name: "Epoch", num: true, cell: (row) => row.epoch ?? "" },
  { name: "Follows", kind: "wrap", cell: (row) => row.leader ?? "" },
  { name: "Since", num: true, cell: (row) => (row.since ? html`<${Ago} at=${row.since} />` : "") },
  { name: "Lease left", num: true, cell: (row) => (row.lease_left_s === undefined || row.lease_left_s === null ? "" : duration(row.lease_left_s)) },
  { name: "Books", cell: (row) => row.books ?? "" },
  { name: "Copy on disk", cell: (row) => (row.snapshot && row.snapshot !== "0.0" ? row.snapshot : "") },
  { name: "Problem", kind: "wrap", cell: (row) => row.silent || row.problem || "" },
];

const CHANGES = [
  { name: "At", cell: (row) => html`<${At} at=${row.at} />` },
  { name: "HAD", kind: "wrap", cell: (row) => row.had },
  { name: "What", cell: (row) => html`<span class="badge"><span class="dot ${row.state === "leader" ? "s-Completed" : "s-Owner"}" aria-hidden="true"></span>${row.state === "leader" ? "leads" : row.state}</span>` },
  { name: "Epoch", num: true, cell: (row) => number(row.epoch) },
  { name: "Nobody led for", num: true, cell: (row) => (row.gap_s ? duration(row.gap_s) : "") },
  { name: "Reason", kind: "wrap", cell: (row) => row.reason ?? "" },
];

const Changes = ({ rows }) => html`<${Table} caption="Changes of leadership, newest first" columns=${CHANGES} rows=${rows} id=${(row) => `${row.at} ${row.had} ${row.state}`} empty=${html`<${Empty} title="No changes recorded" />`} />`;

export function Availability() {
  const types = ["had.*"];
  const now = useData("/v1/had", { types, every: 5000 });
  const past = useData("/v1/overview/leaders?limit=100", { types, every: 30000 });
  const own = (now.data?.hads ?? []).flatMap((one) => one.changes ?? []).sort((a, b) => b.at - a.at);
  return html`
    <${Head} title="Availability" sub="HADs hold a lease in turn; the negotiator beside the leader negotiates. The epoch rises with each change." />
    <div class="stack">
      <${Card} title="HADs" flush><${Part} answer=${now} lines=${4}>${(data) => html`<${Table} caption="HADs" columns=${HADS} rows=${data.hads} id=${(row) => `${row.shard} ${row.had}`} empty=${html`<${Empty} title="No HADs">The negotiator of this pool leads by itself.</${Empty}>`} />`}</${Part}></${Card}>
      <${Card} title="Changes of leadership" flush note=${past.data?.found ? "from the journal" : "what the HADs remember"}>
        <${Recorded} answer=${past} what="The whole history of leaders" instead=${own.length > 0 && html`<${Changes} rows=${own} />`}>${(found) => html`<${Changes} rows=${found.changes} />`}</${Recorded}>
      </${Card}>
    </div>`;
}
