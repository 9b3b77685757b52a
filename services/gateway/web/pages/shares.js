// Fair share: priorities, who gets which part of the pool, and when two users will be equal.
import { Ago, At, Card, Empty, Head, Name, Part, Recorded, Trouble, Unknown } from "../parts/bits.js";
import { Pager, Table, reorder } from "../parts/table.js";
import { Search } from "../parts/search.js";
import { Chart } from "../parts/chart.js";
import { confirm } from "../parts/dialog.js";
import { Line } from "../parts/history.js";
import { ask, url } from "../lib/api.js";
import { html } from "../lib/html.js";
import { count, date, duration, number, percent } from "../lib/format.js";
import { change, href } from "../lib/route.js";
import { useData, useNow } from "../lib/data.js";

const EVENTS = ["negotiation.cycle", "accountant.*"];

const bounded = (row) => row.Floor > 0 || row.Ceiling >= 0;

const COLUMNS = (rows, all, admin, refresh) => [
  { name: "Submitter", sort: "name", kind: "wrap", cell: (row) => html`<a href=${href(["jobs"], { user: row.Name })}><${Name} text=${row.Name} /></a>` },
  { name: "Effective", sort: "priority", num: true, cell: (row) => number(row.Priority) },
  { name: "Real", sort: "real", num: true, cell: (row) => number(row.RealPriority) },
  { name: "Factor", sort: "factor", num: true, cell: (row) => html`${number(row.PriorityFactor)}${row.PriorityFactorUntil > 0 && html` <span class="soft">until <${At} at=${row.PriorityFactorUntil} /></span>`}` },
  { name: "In use", sort: "in_use", num: true, down: true, cell: (row) => html`${number(row.WeightedResourcesUsed)}${all > 0 && row.WeightedResourcesUsed > 0 && html` <span class="soft">${percent(row.WeightedResourcesUsed / all)}</span>`}` },
  { name: "Group share", sort: "share", num: true, down: true, cell: (row) => (row.SubmitterShare ? percent(row.SubmitterShare) : "") },
  { name: "Running", sort: "running", num: true, down: true, cell: (row) => count(row.running) },
  { name: "Idle", sort: "idle", num: true, down: true, cell: (row) => count(row.idle) },
  { name: "Used so far", sort: "usage", num: true, down: true, cell: (row) => `${number((row.WeightedAccumulatedUsage ?? 0) / 3600)} h` },
  ...(rows?.some(bounded) ? [{ name: "Floor, ceiling", num: true, cell: (row) => (bounded(row) ? `${row.Floor > 0 ? number(row.Floor) : "–"} … ${row.Ceiling >= 0 ? number(row.Ceiling) : "–"}` : "") }] : []),
  { name: "Last use", sort: "last", num: true, cell: (row) => (row.LastUsageTime ? html`<${Ago} at=${row.LastUsageTime} />` : "never") },
  ...(admin ? [{ name: "Set", cell: (row) => html`<button type="button" class="button small" onClick=${() => edit(row, refresh)}>Change<span class="unseen"> ${row.Name}</span> …</button>` }] : []),
];

export function Shares({ query, level }) {
  const order = query.order ?? "-in_use";
  const answer = useData(url("/v1/overview/users", { search: query.search, order, after: query.after, limit: 100 }), { types: EVENTS, every: 10000 });
  const { data, error } = answer;
  return html`
    <${Head} title="Fair share" sub=${data && html`A smaller effective priority is a better one: it is the real one times the factor. Half of the way towards present use takes ${duration(data.half_life_s)} (PRIORITY_HALFLIFE). Beside what is in use stands its part of all use; the group share is the part of its group that the last cycle entitled a submitter with idle jobs to.`} />
    <div class="stack">
      <div><div class="row filters"><${Search} label="Search" hint="part of a submitter" value=${query.search ?? ""} onSearch=${(search) => change({ search }, true)} /></div>
      <${Trouble} error=${error} />
      <${Card} flush>
        <${Table} caption="Submitters" columns=${COLUMNS(data?.rows, data?.in_use, level === "ADMINISTRATOR", answer.refresh)} rows=${error && !data ? [] : data?.rows} id=${(row) => `${row.NegotiatorName} ${row.Name}`} order=${order} onOrder=${reorder}
          empty=${error && !data ? html`<${Unknown} />` : html`<${Empty} title="No submitters">Nobody has used this pool yet, or nobody fits the search.</${Empty}>`} />
        ${data && html`<${Pager} shown=${data.rows.length} fits=${data.fits} what="submitters" next=${data.next} first=${!query.after} />`}
      </${Card}></div>
      <div class="grid">
        <${Forecast} query=${query} names=${(data?.rows ?? []).map((row) => row.Name)} />
        <${Past} />
      </div>
    </div>`;
}

function Forecast({ query, names }) {
  const first = query.first ?? names[0] ?? "";
  const second = query.second ?? names.find((name) => name !== first) ?? "";
  const ready = first && second && first !== second;
  const answer = useData(ready ? url("/v1/overview/parity", { first, second }) : "", { types: EVENTS, every: 30000 });
  const known = [...new Set([first, second, ...names])].filter(Boolean);
  const pick = (key, value, label) => html`<label class="field"><span>${label}</span><select class="input" value=${value} onChange=${(event) => change({ first, second, [key]: event.currentTarget.value, after: query.after }, true)}>
    ${known.map((name) => html`<option key=${name} value=${name} selected=${name === value}>${name}</option>`)}</select></label>`;
  return html`<${Card} title="When will two be equal?" wide="w6" note="if both go on using what they use now">
    ${known.length < 2
      ? html`<${Empty} title="It takes two submitters" />`
      : html`<div class="stack"><div class="row">${pick("first", first, "First")}${pick("second", second, "Second")}</div>
          ${ready
            ? html`<${Part} answer=${answer} lines=${6}>${(data) => html`<p><b>${verdict(data)}</b></p>
                <${Chart} label="Effective priorities" relative times=${data.points.map((point) => point[0])} series=${{ [data.first]: data.points.map((point) => point[1]), [data.second]: data.points.map((point) => point[2]) }} />`}</${Part}>`
            : html`<${Empty} title="Choose two different submitters" />`}</div>`}
  </${Card}>`;
}

function verdict(data) {
  if (!data.ahead) return "Both have the same effective priority.";
  if (data.in_s === null) return `Never at present use: ${data.ahead} stays ahead.`;
  return `In ${duration(data.in_s)} (${date(data.at + data.in_s)}); until then ${data.ahead} is ahead.`;
}

function Past() {
  const to = Math.floor(useNow(30000) / 360) * 360;
  const span = { from: to - 86400, to };
  const answer = useData(url("/v1/overview/series", { name: "shares", ...span, points: 240 }), { every: 0 });
  return html`<${Card} title="Shares over the last day" wide="w6">
    <${Recorded} answer=${answer} what="The history of shares" lines=${6}>${(found) => html`<${Line} found=${found} label="Weighted slots in use by submitter" stacked show=${number} span=${span} />`}</${Recorded}>
  </${Card}>`;
}

const edit = (row, refresh) =>
  confirm({
    title: `Change ${row.Name}`,
    text: "It takes effect in the next negotiation cycle.",
    action: "Change",
    fields: [
      { name: "what", label: "What", options: [["factor", `priority factor (now ${number(row.PriorityFactor)})`], ["priority", `effective priority (now ${number(row.Priority)})`], ["ceiling", "ceiling, weighted slots (-1: none)"], ["floor", "floor, weighted slots"], ["accumulated", "accumulated use, slot-seconds"]] },
      { name: "value", label: "Value", type: "number", step: "any", required: true },
      { name: "hours", label: "For how many hours (empty: for good)", type: "number", step: "any", min: 0 },
    ],
    then: async ({ what, value, hours }) => {
      await ask(`/v1/priorities/${encodeURIComponent(row.Name)}`, { method: "POST", body: { what, value: Number(value), duration_s: Number(hours || 0) * 3600, negotiator: row.NegotiatorName ?? "" } });
      refresh();
      return `${what} of ${row.Name} is ${value}`;
    },
  });
