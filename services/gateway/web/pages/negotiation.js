// Negotiation cycles: the last ones from the negotiators' ads, all of them from a journal.
import { Ago, At, Card, Empty, Head, Part, Recorded, Stat } from "../parts/bits.js";
import { Pager, Table } from "../parts/table.js";
import { Chart } from "../parts/chart.js";
import { html } from "../lib/html.js";
import { count, duration, number } from "../lib/format.js";
import { href } from "../lib/route.js";
import { useData } from "../lib/data.js";
import { url } from "../lib/api.js";

const COLUMNS = [
  { name: "Cycle", cell: (row) => html`<a href=${href(["cycle", row.negotiator, row.epoch, row.cycle])}>${row.cycle}</a>` },
  { name: "At", cell: (row) => html`<${At} at=${row.at} />` },
  { name: "Negotiator", kind: "wrap", cell: (row) => `${row.negotiator}, epoch ${row.epoch}` },
  { name: "Trigger", cell: (row) => row.trigger },
  { name: "Took", num: true, cell: (row) => duration(row.duration_s) },
  { name: "Slots", num: true, cell: (row) => count(row.slots) },
  { name: "Submitters", num: true, cell: (row) => count(row.submitters) },
  { name: "Requests", num: true, cell: (row) => count(row.requests) },
  { name: "Matches", num: true, cell: (row) => count(row.matches) },
  { name: "Rejections", num: true, cell: (row) => count(row.rejections) },
];

const LAST = [
  { name: "Began", cell: (row) => html`<${At} at=${row.at} />` },
  { name: "Took", num: true, cell: (row) => duration(row.duration_s) },
  { name: "Slots", num: true, cell: (row) => count(row.slots) },
  { name: "Candidates", num: true, cell: (row) => count(row.candidates) },
  { name: "Submitters", num: true, cell: (row) => count(row.submitters) },
  { name: "Idle jobs", num: true, cell: (row) => count(row.idle_jobs) },
  { name: "Matches", num: true, cell: (row) => count(row.matches) },
  { name: "Rejections", num: true, cell: (row) => count(row.rejections) },
  { name: "Where the time went", kind: "wrap", cell: (row) => [["prefetch", row.prefetch_s], ["slots", row.phase1_s], ["accounts", row.phase2_s], ["sort", row.phase3_s], ["match", row.phase4_s]].filter(([, value]) => value > 0.0005).map(([name, value]) => `${name} ${duration(value)}`).join(", ") },
];

export function Negotiation({ query }) {
  const now = useData("/v1/overview/cycles", { types: ["negotiation.cycle", "had.leader"], every: 10000 });
  const all = useData(url("/v1/overview/cycles/all", { before: query.after, limit: 50 }), { types: query.after ? [] : ["negotiation.cycle"], every: 15000 });
  return html`
    <${Head} title="Negotiation" sub="Each cycle gives free slots to those who have the best priorities." />
    <div class="grid">
      <${Part} answer=${now} lines=${6}>${(data) => data.negotiators.map((one) => html`<${Negotiator} key=${one.Name} one=${one} />`)}</${Part}>
      <${Card} title="All cycles" flush note="from the journal">
        <${Recorded} answer=${all} what="The record of cycles" lines=${6}>${(found) => html`<${Past} cycles=${found.cycles} /><${Table} caption="Negotiation cycles, newest first" columns=${COLUMNS} rows=${found.cycles} id=${(row) => `${row.negotiator} ${row.epoch} ${row.cycle}`} empty=${html`<${Empty} title="No cycles recorded" />`} />
          <${Pager} shown=${found.cycles.length} what="cycles" next=${found.next} first=${!query.after} />`}</${Recorded}>
      </${Card}>
    </div>`;
}

function Past({ cycles }) {
  const old = cycles.toReversed();
  if (old.length < 3) return null;
  return html`<div class="pad"><${Chart} label="Duration of cycles" times=${old.map((one) => one.at)} series=${{ duration: old.map((one) => one.duration_s) }} show=${duration} /></div>`;
}

function Negotiator({ one }) {
  const last = one.cycles[0];
  return html`<${Stat} wide="w3" name=${one.NegotiatorIsActive ? "Leads" : "Stands by"} value=${one.Name} under=${`epoch ${one.Epoch ?? "–"}${one.Shard ? `, shard ${one.Shard}` : ""}`} />
    <${Stat} wide="w3" name="Cycles" value=${count(one.Cycles)} under=${last ? html`last one <${Ago} at=${last.end ?? last.at} />` : "none yet"} />
    <${Stat} wide="w3" name="The last one took" value=${last ? duration(last.duration_s) : "–"} under=${last ? `${count(last.considered)} jobs considered` : ""} />
    <${Stat} wide="w3" name="Matches" value=${last ? count(last.matches) : "–"} under=${last ? `in the last cycle; rejections: ${count(last.rejections)}` : ""} />
    ${one.cycles.length > 0 && html`<${Card} title=${`Last cycles of ${one.Name}`} flush note="from its ad"><${Table} caption=${`Last cycles of ${one.Name}`} columns=${LAST} rows=${one.cycles} id=${(row) => `${row.at}`} /></${Card}>`}`;
}

export function Cycle({ path }) {
  const [, negotiator, epoch, cycle] = path;
  const answer = useData(`/v1/overview/cycles/${encodeURIComponent(negotiator ?? "")}/${encodeURIComponent(epoch ?? "")}/${encodeURIComponent(cycle ?? "")}`, { every: 0 });
  return html`<${Head} title=${`Cycle ${cycle}`} sub=${`of ${negotiator}, epoch ${epoch}`} crumb=${html`<a href=${href(["negotiation"])}>Negotiation</a>`} />
    <${Recorded} answer=${answer} what="What a cycle did">${(found) => html`<${Whole} data=${found} />`}</${Recorded}>`;
}

/** Whatever the journal kept of a cycle: plain values as facts, lists as tables. */
function Whole({ data }) {
  const plain = Object.entries(data).filter(([, value]) => value === null || typeof value !== "object");
  const lists = Object.entries(data).filter(([, value]) => Array.isArray(value));
  return html`<div class="grid">
    <${Card} title="In numbers"><dl class="facts">${plain.map(([name, value]) => html`<dt>${name.replaceAll("_", " ")}</dt><dd>${name === "at" ? html`<${At} at=${value} />` : name.endsWith("_s") ? duration(value) : typeof value === "number" ? number(value) : String(value ?? "–")}</dd>`)}</dl></${Card}>
    ${lists.map(([name, rows]) => html`<${Card} title=${name.charAt(0).toUpperCase() + name.slice(1)} note=${count(rows.length)} flush>${rows.length ? html`<${Table} caption=${name} columns=${columns(rows)} rows=${rows.slice(0, 500)} id=${(row) => JSON.stringify(row)} />` : html`<${Empty} title="None" />`}</${Card}>`)}
  </div>`;
}

function columns(rows) {
  const names = [...new Set(rows.slice(0, 50).flatMap((row) => (row && typeof row === "object" ? Object.keys(row) : ["value"])))];
  return names.map((name) => ({
    name: name.replaceAll("_", " "),
    kind: "wrap",
    num: rows.every((row) => typeof row?.[name] === "number"),
    cell: (row) => {
      const value = row && typeof row === "object" ? row[name] : row;
      if (name === "at" || name === "start" || name === "end") return html`<${At} at=${value} />`;
      if (typeof value === "number") return number(value);
      if (value && typeof value === "object") return Object.entries(value).map(([key, one]) => `${key} ${typeof one === "number" ? number(one) : one}`).join(", ");
      return String(value ?? "");
    },
  }));
}
