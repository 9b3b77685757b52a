// Accounting groups: quotas, use, and who lends what to whom.
import { Bar, Card, Empty, Head, Part, Stat } from "../parts/bits.js";
import { Table } from "../parts/table.js";
import { confirm } from "../parts/dialog.js";
import { ask, url } from "../lib/api.js";
import { html } from "../lib/html.js";
import { count, number, percent } from "../lib/format.js";
import { href } from "../lib/route.js";
import { useData } from "../lib/data.js";

const ROOT = "<none>";
const named = (name) => (name === "" ? "no group's quota" : name === ROOT ? "the whole pool" : name);

/** Groups below each other, with how deep they are. */
function tree(groups) {
  const below = new Map();
  const names = new Set(groups.map((group) => group.Name));
  for (const group of groups) {
    const parent = group.Name !== group.AccountingGroup && names.has(group.AccountingGroup) ? group.AccountingGroup : "";
    below.set(parent, [...(below.get(parent) ?? []), group]);
  }
  const found = [];
  const todo = (below.get("") ?? []).map((group) => [group, 0]).reverse();
  while (todo.length) {
    const [group, depth] = todo.pop();
    found.push({ ...group, depth, wanted: 0 });
    const inside = (below.get(group.Name) ?? []).toSorted((a, b) => a.Name.localeCompare(b.Name));
    for (const child of inside.reverse()) todo.push([child, depth + 1]);
  }
  // What is wanted below a group is wanted of it, as what is in use there is.
  for (const [place, group] of [...found.entries()].reverse()) {
    group.wanted = (group.Requested ?? 0) + group.wanted;
    for (let above = place - 1; above >= 0; above--) {
      if (found[above].depth < group.depth) {
        found[above].wanted += group.wanted;
        break;
      }
    }
  }
  return found;
}

const quota = (row, planned) => (planned ? row.SubtreeQuota : row.ConfigQuota) ?? 0;

const COLUMNS = (data, admin, refresh) => [
  { name: "Group", kind: "wrap", cell: (row) => html`<span class="indent" style=${{ width: `${row.depth * 18}px` }}></span>${row.depth > 0 ? html`<span class="soft" aria-hidden="true">└ </span>` : ""}${named(row.Name)}` },
  { name: "Use of the quota", cell: (row) => html`<${Use} row=${row} limit=${quota(row, data.planned)} />` },
  { name: "In use", num: true, cell: (row) => number(row.HierWeightedResourcesUsed ?? row.WeightedResourcesUsed) },
  { name: "Quota", num: true, cell: (row) => (row.Name === ROOT ? "" : number(quota(row, data.planned))) },
  { name: "Configured", num: true, cell: (row) => (row.Name === ROOT || !row.ConfigQuota ? "" : html`${row.ConfigQuota < 1 ? percent(row.ConfigQuota) : number(row.ConfigQuota)}${row.QuotaIsSet && html` <span class="soft">set</span>`}`) },
  { name: "Wanted", num: true, cell: (row) => number(row.wanted) },
  { name: "Surplus", cell: (row) => ({ no: "takes none", byquota: "by quota", regroup: "regroup" })[row.SurplusPolicy] ?? row.SurplusPolicy },
  { name: "Submitters", num: true, cell: (row) => (row.members ? html`<a href=${href(["shares"], { search: row.Name === ROOT ? "" : row.Name })}>${count(row.members)}</a>` : "0") },
  ...(admin ? [{ name: "Set", cell: (row) => row.Name !== ROOT && html`<span class="row">
    <button type="button" class="button small" onClick=${() => setQuota(row, refresh)}>Quota<span class="unseen"> of ${row.Name}</span> …</button>
    ${row.QuotaIsSet && html`<button type="button" class="button small" onClick=${() => unsetQuota(row, refresh)}>Undo<span class="unseen"> what was set for ${row.Name}</span> …</button>`}</span>` }] : []),
];

const door = (row) => `/v1/groups/${encodeURIComponent(row.Name)}/quota`;
const configured = (row) => (row.ConfigQuota < 1 ? percent(row.ConfigQuota ?? 0) : number(row.ConfigQuota));

const setQuota = (row, refresh) =>
  confirm({
    title: `Quota of ${row.Name}`,
    text: `It is ${configured(row)}${row.QuotaIsSet ? ", which somebody has set" : ", by the configuration"}. Another one counts from the next negotiation cycle on, whichever negotiator leads, until it is taken back.`,
    action: "Set the quota",
    fields: [
      { name: "kind", label: "Counted in", options: [["quota", "weighted slots"], ["dynamic_quota", "a part of the quota above: 0 to 1"]] },
      { name: "value", label: "Quota", type: "number", step: "any", min: 0, required: true },
    ],
    then: async ({ kind, value }) => {
      await ask(door(row), { method: "PUT", body: { [kind]: Number(value), negotiator: row.NegotiatorName ?? "" } });
      refresh();
      return `The quota of ${row.Name} is ${kind === "quota" ? number(Number(value)) : percent(Number(value))}`;
    },
  });

const unsetQuota = (row, refresh) =>
  confirm({
    title: `Give ${row.Name} the configuration's quota again?`,
    text: `It is ${configured(row)} now, which somebody has set.`,
    action: "Undo",
    then: async () => {
      await ask(url(door(row), { negotiator: row.NegotiatorName }), { method: "DELETE" });
      refresh();
      return `${row.Name} has the configuration's quota again`;
    },
  });

function Use({ row, limit }) {
  const used = row.HierWeightedResourcesUsed ?? row.WeightedResourcesUsed ?? 0;
  const scale = Math.max(used, limit, 1e-9);
  const inside = row.Name === ROOT ? used : Math.min(used, limit);
  const parts = [
    { label: "within the quota", value: inside, tone: "s-Claimed" },
    { label: "above the quota", value: Math.max(0, used - inside), tone: "s-Owner" },
    { label: "left of the quota", value: Math.max(0, limit - used), tone: "s-Unclaimed" },
  ];
  return html`<${Bar} size="thin" total=${scale} parts=${parts} label=${parts.filter((part) => part.value > 0).map((part) => `${number(part.value)} ${part.label}`).join(", ") || "nothing in use"} />`;
}

const LOANS = (sum) => [
  { name: "Lender", kind: "wrap", cell: (row) => named(row.lender) },
  { name: "Borrower", kind: "wrap", cell: (row) => named(row.borrower) },
  { name: "Weighted slots", num: true, cell: (row) => number(row.amount) },
  { name: "Part of all loans", cell: (row) => html`<${Bar} size="thin" total=${sum} parts=${[{ label: percent(row.amount / sum), value: row.amount, tone: "s-Owner" }]} />` },
];

export function Groups({ level }) {
  const answer = useData("/v1/overview/groups", { types: ["negotiation.cycle", "accountant.*"], every: 10000 });
  return html`
    <${Head} title="Groups" sub="Accounting groups, what each may use, and what is lent while somebody does not need it." />
    <${Part} answer=${answer} lines=${8}>${(data) => html`<${Shown} data=${data} admin=${level === "ADMINISTRATOR"} refresh=${answer.refresh} />`}</${Part}>`;
}

function Shown({ data, admin, refresh }) {
  const rows = tree(data.groups);
  const lent = data.loans.reduce((all, loan) => all + loan.amount, 0);
  const used = data.groups.reduce((all, group) => all + (group.WeightedResourcesUsed ?? 0), 0);
  if (rows.length < 2) return html`<${Card}><${Empty} title="No accounting groups">GROUP_NAMES and GROUP_QUOTA_… in the negotiator's configuration make some.</${Empty}></${Card}>`;
  return html`<div class="grid">
    <${Stat} name="Groups" value=${count(rows.length - 1)} under=${data.planned ? "quotas as of the last cycle" : "no cycle has negotiated for groups yet"} wide="w4" />
    <${Stat} name="In use" value=${number(used)} unit="weighted slots" under=${`the pool has ${number(data.cpus)} cpus`} wide="w4" />
    <${Stat} name="Lent" value=${number(lent)} unit="weighted slots" under=${used ? `${percent(lent / used)} of what is in use` : ""} wide="w4" />
    <${Card} title="Quotas and use" flush note="blue: within the quota, orange: above it, grey: left"><${Table} caption="Accounting groups" columns=${COLUMNS(data, admin, refresh)} rows=${rows} id=${(row) => row.Name} /></${Card}>
    <${Card} title="Who lends what to whom" flush>
      ${data.loans.length
        ? html`<${Table} caption="Loans" columns=${LOANS(lent)} rows=${data.loans.slice(0, 200)} id=${(row) => `${row.lender} ${row.borrower}`} />`
        : html`<${Empty} title="Nobody uses more than its quota" />`}
      <p class="pager">A loan is an attribution: what a group uses above its quota is taken from what others leave of theirs, in proportion, first from groups under the same parent.</p>
    </${Card}></div>`;
}
