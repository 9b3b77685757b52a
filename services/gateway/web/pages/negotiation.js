// Negotiation cycles: the last ones from the negotiators' ads, all of them from a journal.
import { Ago, At, Card, Empty, Facts, Head, Part, Recorded, Stat } from "../parts/bits.js";
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
  const [, negotiator = "", epoch = "", cycle = ""] = path;
  const answer = useData(`/v1/overview/cycles/${[negotiator, epoch, cycle].map(encodeURIComponent).join("/")}`, { every: 0 });
  const newest = useData("/v1/overview/cycles/all?limit=1", { types: ["negotiation.cycle"], every: 15000 }).data?.found?.cycles?.[0];
  const number = Number(cycle);
  const last = newest && newest.negotiator === negotiator && String(newest.epoch) === epoch && newest.cycle <= number;
  return html`<${Head} title=${`Cycle ${cycle}`} sub=${`of ${negotiator}, epoch ${epoch}`} crumb=${html`<a href=${href(["negotiation"])}>Negotiation</a>`}>
      ${number > 1 && html`<a class="button" rel="prev" href=${href(["cycle", negotiator, epoch, String(number - 1)])}>Previous</a>`}
      ${!last && html`<a class="button" rel="next" href=${href(["cycle", negotiator, epoch, String(number + 1)])}>Next</a>`}
    </${Head}>
    <${Recorded} answer=${answer} what="What a cycle did">${(found) => html`<${Whole} data=${found} />`}</${Recorded}>`;
}

const of_submitter = (row) => html`<a href=${href(["jobs"], { user: row.submitter })}>${row.submitter}</a>`;

const MATCHED = [
  { name: "Submitter", kind: "wrap", cell: of_submitter },
  { name: "Jobs", num: true, cell: (row) => count(row.jobs) },
  { name: "Slots", num: true, cell: (row) => count(row.slots) },
  { name: "Weight charged", num: true, cell: (row) => number(row.weight) },
];
const REASONS = [
  { name: "Submitter", kind: "wrap", cell: of_submitter },
  { name: "Jobs", num: true, cell: (row) => count(row.jobs) },
  { name: "Why they got nothing", kind: "wrap", cell: (row) => row.text || row.code },
  { name: "So since", num: true, cell: (row) => html`<${At} at=${row.since} />` },
];
/** What a cycle's facts are called; what is not here is shown by its own name. */
const CYCLE_FACTS = {
  at: "Ended", trigger: "Begun by", duration_s: "It took", slots: "Slots", submitters: "Submitters", requests: "Requests of jobs that are alike",
  matches: "Matches", rejections: "Requests that got nothing, or less than they asked", shard: "Shard", schedds: "Schedds", idle_jobs: "Idle jobs",
};
const IN_HEAD = new Set(["negotiator", "epoch", "cycle", "type", "id", "sender"]);

function Whole({ data }) {
  const plain = Object.entries(data).filter(([name, value]) => !IN_HEAD.has(name) && value !== "" && value !== null && typeof value !== "object");
  return html`<div class="grid">
    <${Card} title="In numbers"><${Facts} facts=${plain.map(([name, value]) => [CYCLE_FACTS[name] ?? name.replace(/_s$/, "").replaceAll("_", " "), fact(name, value)])} /></${Card}>
    <${Card} title="Who got slots" note=${count(data.matched?.length ?? 0)} flush><${Table} caption="Matches by submitter" columns=${MATCHED} rows=${data.matched ?? []} id=${(row) => row.submitter} empty=${html`<${Empty} title="Nobody">No slot was given away in this cycle.</${Empty}>`} /></${Card}>
    <${Card} title="Who got nothing" note=${count(data.reasons?.length ?? 0)} flush><${Table} caption="Reasons by submitter" columns=${REASONS} rows=${data.reasons ?? []} id=${(row) => `${row.submitter} ${row.code}`} empty=${html`<${Empty} title="Nobody">All who asked got what they asked for.</${Empty}>`} /></${Card}>
  </div>`;
}

function fact(name, value) {
  if (name === "at") return html`<${At} at=${value} />`;
  if (name.endsWith("_s")) return duration(value);
  return typeof value === "number" ? number(value) : String(value);
}
