// How the daemons of the pool do, each as it says itself, and what waits in their queues.
import { Ago, Card, Empty, Head, Part, Since, Stat } from "../parts/bits.js";
import { Findings } from "../parts/attention.js";
import { Pager, Table } from "../parts/table.js";
import { Search } from "../parts/search.js";
import { html } from "../lib/html.js";
import { count, duration, memory } from "../lib/format.js";
import { change, href } from "../lib/route.js";
import { useData } from "../lib/data.js";

const PAGE = 100;
/** A loop that was held counts for so long, seconds; a clock may be so far from this gateway's. */
const RECENT_S = 600;
const CLOCK_S = 2;

/** What a daemon is at, in a word and a colour, and why. @returns {[string, string, string]} */
function state(one) {
  if (one.off) return ["switched off", "s-Unclaimed", ""];
  if (one.silent) return ["silent", "s-Failed", one.silent];
  const { waiting_for: waits = [], troubles = [] } = one.health;
  if (waits.length) return ["waits", "s-Held", waits.join("; ")];
  if (troubles.length) return ["works", "s-Owner", troubles.join("; ")];
  return ["works", "s-Completed", ""];
}

/** Those that need somebody come first, machines last. */
const GRAVITY = { "s-Failed": 0, "s-Held": 1, "s-Owner": 2, "s-Unclaimed": 3, "s-Completed": 4 };
const ordered = (daemons) =>
  daemons.toSorted((a, b) => GRAVITY[state(a)[1]] - GRAVITY[state(b)[1]] || (a.subsystem === "STARTD") - (b.subsystem === "STARTD") || a.subsystem.localeCompare(b.subsystem) || a.name.localeCompare(b.name));

const COLUMNS = (queues, releases, measured) => [
  { name: "Daemon", kind: "wrap", cell: (row) => (row.subsystem === "STARTD" ? html`<a href=${href(["machines"], { search: row.name })}>startd ${row.name}</a>` : `${row.subsystem.toLowerCase()} ${row.name}`) },
  { name: "State", kind: "wrap", cell: (row) => {
    const [word, tone, why] = state(row);
    return html`<span class="badge"><span class="dot ${tone}" aria-hidden="true"></span>${word}</span>${why && html` <span class="soft">${why}</span>`}`;
  } },
  { name: "Role", cell: (row) => row.health.role ?? "" },
  { name: "Queue", num: true, cell: (row) => (row.off ? "" : count(queues[row.queue]?.after ?? 0)) },
  ...(measured ? [{ name: "Loop", kind: "wrap", cell: (row) => loop(row.health.loop) }] : []),
  { name: "Clock", num: true, cell: (row) => (row.clock_s === null || row.clock_s === undefined ? "" : apart(row)) },
  { name: "Answers in", num: true, cell: (row) => (row.clock_s === null || row.clock_s === undefined ? "" : duration(2 * row.unsure_s)) },
  { name: "Broker, store", kind: "wrap", cell: (row) => connections(row.health) },
  { name: "Free disk", num: true, cell: (row) => disks(row.health.disks) },
  { name: "Release", cell: (row) => html`<span class=${releases > 1 ? "bad" : ""}>${row.health.release ?? ""}</span>` },
  { name: "Heard of", num: true, cell: (row) => (row.heard ? html`<${Ago} at=${row.heard} />` : "") },
  { name: "Up for", num: true, cell: (row) => (row.began && !row.off && !row.silent ? html`<${Since} at=${row.began} />` : "") },
];

/** How often the event loop was held, and the last time. */
function loop(told) {
  if (!told || told.held === undefined) return "";
  if (!told.held) return html`<span class="soft">never held</span>`;
  const { last } = told;
  const text = `held ${count(told.held)} times${last ? `, last ${duration(last.seconds)}, ${duration(last.ago_s)} ago` : ""}`;
  return html`<span class=${last && last.ago_s < RECENT_S ? "" : "soft"} title=${last ? `by ${last.by}` : ""}>${text}</span>`;
}

const apart = ({ clock_s: off, unsure_s: unsure }) =>
  Math.abs(off) > CLOCK_S + unsure ? html`<span class="bad">${off > 0 ? "+" : "−"}${duration(Math.abs(off))}</span>` : "right";

function connections({ bus, store }) {
  if (!bus) return "";
  const denied = Object.values(bus.denied ?? {}).reduce((all, one) => all + one, 0);
  const found = [
    bus.connected ? "" : "broker away",
    bus.reconnects ? `broker again ${count(bus.reconnects)} times` : "",
    bus.dead_lettered ? `${count(bus.dead_lettered)} dead letters` : "",
    denied ? `${count(denied)} refused` : "",
    store && store.variant && store.variant !== "none" && !store.connected ? "store away" : "",
  ].filter(Boolean);
  return found.join(", ") || html`<span class="soft">well</span>`;
}

/** The least of what is free, with the directory that has it. */
function disks(told) {
  const [name, sizes] = Object.entries(told ?? {}).toSorted(([, a], [, b]) => a[0] - b[0])[0] ?? [];
  return sizes ? html`<span>${memory(sizes[0] / 1048576)} <span class="soft">${name}</span></span>` : "";
}

const QUEUES = [
  { name: "Queue", kind: "wrap", cell: (row) => row.name },
  { name: "Messages", num: true, cell: (row) => count(row.after) },
  { name: "A second before", num: true, cell: (row) => count(row.before) },
  { name: "They become", cell: (row) => (row.after > row.before ? html`<span class="bad">more</span>` : row.after < row.before ? "fewer" : "neither more nor fewer") },
];

export function Daemons({ query }) {
  const answer = useData("/v1/daemons/health", { types: ["daemon.*", "had.leader"], every: 10000 });
  const wanted = (query.search ?? "").toLowerCase();
  return html`
    <${Head} title="Daemons" sub="Each is asked how it does: what it waits for, how often its event loop was held for more than 50 ms, what waits in its queue.">
      <${Search} label="Search" hint="part of a name" value=${query.search ?? ""} onSearch=${(search) => change({ search }, true)} />
    </${Head}>
    <${Part} answer=${answer} lines=${8}>${(data) => html`<${Shown} data=${data} wanted=${wanted} from=${Number(query.after) || 0} />`}</${Part}>`;
}

function Shown({ data, wanted, from }) {
  const { daemons } = data;
  const queues = Object.fromEntries(data.queues.map((one) => [one.name, one]));
  const well = daemons.filter((one) => state(one)[1] === "s-Completed").length;
  const releases = new Set(daemons.map((one) => one.health.release).filter(Boolean));
  const measured = daemons.some((one) => one.health.loop?.held !== undefined);
  const waiting = data.queues.reduce((all, one) => all + one.after, 0);
  const slowest = Math.max(0, ...daemons.map((one) => (one.clock_s === null || one.clock_s === undefined ? 0 : 2 * one.unsure_s)));
  const found = data.findings ?? [];
  const fit = ordered(daemons.filter((one) => `${one.subsystem} ${one.name}`.toLowerCase().includes(wanted)));
  const rows = fit.slice(from, from + PAGE);
  return html`<div class="grid">
    <${Stat} name="Daemons that work" value=${html`<span class=${well < daemons.length ? "bad" : ""}>${count(well)}</span>`} unit=${`of ${count(daemons.length)}`} under="answer, and wait for nothing" />
    <${Stat} name="Slowest answer" value=${duration(slowest)} under="asked over the broker" />
    <${Stat} name="Messages in queues" value=${count(waiting)} under=${data.queues.length ? `in ${count(data.queues.length)} ${data.queues.length === 1 ? "queue" : "queues"}` : "none waits"} />
    <${Stat} name="Releases" value=${releases.size === 1 ? [...releases][0] : count(releases.size)} under=${releases.size > 1 ? [...releases].toSorted().join(", ") : "of all that tell theirs"} />
    ${found.length > 0 && html`<${Card} title="What is wrong"><${Findings} found=${found} /></${Card}>`}
    <${Card} title="Daemons" flush note=${html`as of <${Ago} at=${data.at} />`}>
      <${Table} caption="Daemons, those that need somebody first" columns=${COLUMNS(queues, releases.size, measured)} rows=${rows} id=${(row) => `${row.subsystem} ${row.name}`} empty=${html`<${Empty} title="No such daemons" />`} />
      <${Pager} shown=${rows.length} fits=${fit.length} what="daemons" next=${from + PAGE < fit.length ? from + PAGE : null} first=${!from} />
    </${Card}>
    ${data.queues.length > 0 && html`<${Card} title="Queues" flush note=${`those in which something waits; ${count(waiting)} in all`}>
      <${Table} caption="Queues in which messages wait" columns=${QUEUES} rows=${data.queues} id=${(row) => row.name} /></${Card}>`}
  </div>`;
}
