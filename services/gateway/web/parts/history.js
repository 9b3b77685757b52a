// Curves of the pool over time. The range, or what was zoomed to, is in the address, and the same for all charts of the
// page; what happened to daemons meanwhile is marked in them and told below.
import { At, Card, Empty, Part, Tabs } from "./bits.js";
import { Chart } from "./chart.js";
import { html, useRef } from "../lib/html.js";
import { count, isNumber, moment, number } from "../lib/format.js";
import { current, go, href } from "../lib/route.js";
import { useData, useNow } from "../lib/data.js";
import { said, tone } from "../lib/words.js";
import { url } from "../lib/api.js";

/** Seconds, and of how many of them each point is the mean. */
const RANGES = { "1h": [3600, 30], "6h": [21600, 90], "24h": [86400, 360], "7d": [604800, 2520] };
const FIRST = "1h";
/** Of how many seconds a point may be the mean where somebody has zoomed; and of how many points a chart is, at most. */
const STEPS = [30, 60, 90, 120, 300, 360, 600, 900, 1800, 2520, 3600, 7200, 14400, 43200, 86400];
const POINTS = 240;
const LEAST_S = 120;
const LONGEST_S = 366 * 86400;
const KEPT = 900;
const LISTED = 12;

/** What this page has seen itself: the picture where nobody keeps a history. */
const samples = [];

/** @param {any} data the overview @returns what was seen since the page was opened */
export function useSamples(data) {
  const last = useRef(0);
  if (data && !data.slots.error && data.at > last.current && data.at > (samples.at(-1)?.at ?? 0) + 0.9) {
    last.current = data.at;
    samples.push({ at: data.at, slots: data.slots, queue: data.queue });
    if (samples.length > KEPT) samples.shift();
  }
  return samples;
}

/**
 * What the charts show: whole parts only, as the mean of a part that has just begun is not that of the others; and an
 * answer may be shared. @param {Record<string, string>} query @param {number} now
 */
export function span(query, now) {
  const [from, to] = [Number(query.from), Number(query.to)];
  if (from > 0 && to > from) {
    const wide = Math.min(LONGEST_S, Math.max(LEAST_S, to - from));
    const step = STEPS.find((one) => wide / one <= POINTS) ?? STEPS.at(-1);
    const last = Math.floor(Math.min(to, now) / step) * step;
    const points = Math.max(2, Math.ceil(wide / step));
    return { from: last - points * step, to: last, points, zoomed: true, range: "" };
  }
  const range = query.range in RANGES ? query.range : FIRST;
  const [seconds, step] = RANGES[range];
  const last = Math.floor(now / step) * step;
  return { from: last - seconds, to: last, points: seconds / step, zoomed: false, range };
}

export const zoom = (from, to) => {
  const [first, last] = [Math.floor(from), Math.ceil(to)];
  const room = Math.max(0, LEAST_S - (last - first)) / 2;
  go(href(current().path, { ...current().query, range: "", from: Math.floor(first - room), to: Math.ceil(last + room) }));
};

/** Ranges, and for who has no mouse what dragging does. */
export function Ranges({ shown, now }) {
  const { from, to, zoomed, range } = shown;
  const wide = to - from;
  const middle = (from + to) / 2;
  const tabs = Object.keys(RANGES).map((key) => ({ text: key, to: href(current().path, { range: key }), on: key === range }));
  const way = (text, first, last, off = false) => html`<button type="button" class="button small" disabled=${off} onClick=${() => zoom(first, last)}>${text}</button>`;
  return html`<div class="row w12" role="group" aria-label="Time of the charts">
    <${Tabs} label="Range" tabs=${tabs} />
    ${way("Closer", middle - wide / 4, middle + wide / 4, wide <= LEAST_S)}
    ${way("Wider", from - wide / 2, to + wide / 2, wide >= LONGEST_S)}
    ${way("Earlier", from - wide / 2, to - wide / 2)}
    ${way("Later", from + wide / 2, to + wide / 2, to + LEAST_S > now)}
    <span class="soft" role="status">${zoomed ? `${moment(from)} to ${moment(to)}` : "drag in a chart to look closer"}</span>
  </div>`;
}

/** @param {{recent: any[], states: string[], query: Record<string, string>}} props states: in their order */
export function History({ recent, states, query }) {
  const now = useNow(5000);
  const shown = span(query, now);
  const { from, to, points } = shown;
  const use = useKept(url("/v1/overview/series", { name: "cpus", from, to, points }));
  const jobs = useKept(url("/v1/overview/series", { name: "jobs", from, to, points }));
  const past = useKept(url("/v1/overview/incidents", { from, to }));
  const missing = use.data?.missing ?? jobs.data?.missing;
  const young = !shown.zoomed && use.data?.found && !known(use.data.found);
  if (missing || young) return html`<${Seen} recent=${recent} states=${states} note=${`${missing ?? "the journal has nothing of this time yet"}: what this page saw since it was opened`} />`;
  const incidents = past.data?.found?.incidents ?? [];
  const marks = incidents.map((one) => one.at);
  const drawn = { span: shown, marks, zoom };
  return html`<${Ranges} shown=${shown} now=${now} />
    <${Card} title="Cpus over time" wide="w6" note=${use.data?.instead}>
      <${Part} answer=${use} lines=${7}>${({ found }) => html`<${Line} ...${drawn} found=${found} label="Cpus by state" stacked show=${number} unit=${use.data?.instead ? " slots" : " cpus"} />`}</${Part}></${Card}>
    <${Card} title="Jobs over time" wide="w6">
      <${Part} answer=${jobs} lines=${7}>${({ found }) => html`<${Line} ...${drawn} found=${found} label="Jobs by status" unit=" jobs" />`}</${Part}></${Card}>
    ${incidents.length > 0 && html`<${Incidents} incidents=${incidents} cut=${past.data.found.cut} />`}`;
}

function Seen({ recent, states, note }) {
  const times = recent.map((one) => one.at);
  const names = states.filter((name) => recent.some((one) => one.slots.states[name]));
  const bySlots = Object.fromEntries(names.map((name) => [name, recent.map((one) => one.slots.states[name]?.cpus ?? 0)]));
  const byJobs = { Running: recent.map((one) => one.queue.running ?? 0), Idle: recent.map((one) => one.queue.idle ?? 0), Held: recent.map((one) => one.queue.held ?? 0) };
  return html`<${Card} title="Cpus over time" wide="w6" note=${note}><${Chart} label="Cpus by state" times=${times} series=${bySlots} stacked show=${number} unit=" cpus" /></${Card}>
    <${Card} title="Jobs over time" wide="w6" note=${note}><${Chart} label="Jobs by status" times=${times} series=${byJobs} show=${count} unit=" jobs" /></${Card}>`;
}

/** What the dashed lines are, newest first. */
function Incidents({ incidents, cut }) {
  const shown = incidents.toReversed().slice(0, LISTED);
  const more = incidents.length - shown.length;
  return html`<${Card} title="What happened to daemons" note=${`dashed lines in the charts${more ? `; ${count(more)} earlier ones are not listed` : ""}${cut ? "; there were more than are looked at" : ""}`}>
    <ul class="steps">${shown.map((one) => html`<li key=${`${one.at} ${one.event.id}`}><${At} at=${one.at} />
      <span class="badge"><span class="dot ${tone(one.event.type, one.event)}" aria-hidden="true"></span><span>${said(one.event)}${one.count > 1 && `, and ${count(one.count - 1)} more of the kind until ${moment(one.end)}`}</span></span></li>`)}</ul></${Card}>`;
}

/** An answer whose address moves on with time: the former one is shown until the next is there. */
export function useKept(path) {
  const answer = useData(path, { every: 0 });
  const kept = useRef({ data: undefined, size: "" });
  const asked = new URLSearchParams(path.split("?")[1]);
  const size = String(Number(asked.get("to")) - Number(asked.get("from")));
  if (answer.data || kept.current.size !== size) kept.current = { data: answer.data, size };
  return { ...answer, data: answer.data ?? kept.current.data };
}

export const known = (found) => Object.values(found.series ?? {}).some((line) => line.some(isNumber));

/** @param {{found: any, label: string, stacked?: boolean, show?: (value: number) => string, unit?: string, span?: {from: number, to: number}, marks?: number[], zoom?: (from: number, to: number) => void}} props span: what the axis shows */
export function Line({ found, label, stacked, show = count, unit = "", span: shown, marks, zoom: zoomed }) {
  if (!known(found)) return html`<${Empty} title="Nothing recorded in this time yet" />`;
  return html`<${Chart} label=${label} times=${found.times} series=${found.series} stacked=${stacked} show=${show} unit=${unit} span=${shown} marks=${marks} zoom=${zoomed} steps />`;
}
