// Several pools side by side, as their gateways tell.
import { Ago, Card, Empty, Head, Part, Stat } from "../parts/bits.js";
import { Table } from "../parts/table.js";
import { html } from "../lib/html.js";
import { count, number, percent } from "../lib/format.js";
import { useData } from "../lib/data.js";

const OWN = "this pool";

/** How a pool is, in a word and a colour. @returns {[string, string]} */
function state(row) {
  if (row.error) return ["not reached", "s-Failed"];
  if (row.error_count) return [`${count(row.error_count)} ${row.error_count === 1 ? "error" : "errors"}`, "s-Failed"];
  if (row.warning_count) return [`${count(row.warning_count)} ${row.warning_count === 1 ? "warning" : "warnings"}`, "s-Owner"];
  return ["well", "s-Completed"];
}

const COLUMNS = [
  { name: "Pool", cell: (row) => (!row.name ? html`<a href="#/">${OWN}</a>` : row.url ? html`<a href=${`${row.url}/`} rel="noreferrer">${row.name}</a>` : row.name) },
  { name: "State", kind: "wrap", cell: (row) => {
    const [word, tone] = state(row);
    return html`<span class="badge"><span class="dot ${tone}" aria-hidden="true"></span>${word}</span> <span class="soft">${row.error || row.first}</span>`;
  } },
  { name: "Cpus", num: true, cell: (row) => (row.cpus === null ? "" : number(row.cpus)) },
  { name: "In use", num: true, cell: (row) => (row.utilisation === null ? "" : percent(row.utilisation)) },
  { name: "GPUs", num: true, cell: (row) => (row.gpus ? number(row.gpus) : "") },
  { name: "Running", num: true, cell: (row) => counted(row.running) },
  { name: "Idle", num: true, cell: (row) => counted(row.idle) },
  { name: "Held", num: true, cell: (row) => counted(row.held) },
  { name: "Users", num: true, cell: (row) => counted(row.users) },
  { name: "Release", cell: (row) => row.version },
  { name: "As of", num: true, cell: (row) => (row.at ? html`<${Ago} at=${row.at} />` : "") },
];

const counted = (value) => (value === null ? "" : count(value));
const sum = (rows, name) => rows.reduce((all, row) => all + (row[name] ?? 0), 0);

export function Pools() {
  const answer = useData("/v1/pools", { every: 10000 });
  return html`
    <${Head} title="Pools" sub="This pool and those that its gateway is told to ask." />
    <${Part} answer=${answer} lines=${4}>${(data) => html`<${Shown} rows=${data.pools} />`}</${Part}>`;
}

function Shown({ rows }) {
  const away = rows.filter((row) => row.error).length;
  const cpus = sum(rows, "cpus");
  return html`<div class="grid">
    <${Stat} name="Pools" value=${count(rows.length)} under=${away ? html`<span class="bad">${count(away)} can not be reached</span>` : "all answer"} />
    <${Stat} name="Cpus in use" value=${cpus ? percent(sum(rows, "used_cpus") / cpus) : "–"} under=${`${number(sum(rows, "used_cpus"))} of ${number(cpus)}`} />
    <${Stat} name="Running jobs" value=${count(sum(rows, "running"))} under="in their own queues" />
    <${Stat} name="Idle jobs" value=${count(sum(rows, "idle"))} under=${`${count(sum(rows, "held"))} held`} />
    <${Card} title="One by one" flush>
      <${Table} caption="Pools" columns=${COLUMNS} rows=${rows} id=${(row) => row.name} />
      ${rows.length === 1 && html`<${Empty} title="No other pools">ROOST_GATEWAY_POOLS names those that are shown here (docs/dashboard.md).</${Empty}>`}
    </${Card}>
  </div>`;
}
