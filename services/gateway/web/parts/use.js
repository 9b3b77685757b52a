// What a job uses of what it asked for: now, at its most, and while this page was open.
import { Bar, Card, Empty } from "./bits.js";
import { Chart } from "./chart.js";
import { html, useRef } from "../lib/html.js";
import { memory, number, percent } from "../lib/format.js";

const SHOWN = { cpus: ["Cpus", number], memory: ["Memory", memory], disk: ["Disk", memory], gpus: ["GPUs", number] };
const KEPT = 500;

/**
 * @param {{use: {at: number, parts: Record<string, Amounts>}, running: boolean, id: string, ran: boolean}} props
 * @typedef {{used: number, asked?: number, given?: number}} Amounts cpus, MiB; asked: where its submit file does
 */
export function Use({ use, running, id, ran }) {
  const kept = useRef({ id: "", points: [] });
  if (kept.current.id !== id) kept.current = { id, points: [] };
  const { points } = kept.current;
  const parts = Object.entries(use?.parts ?? {}).filter(([name]) => SHOWN[name]);
  if (running && use && use.at > (points.at(-1)?.at ?? 0) + 0.9) {
    points.push(use);
    if (points.length > KEPT) points.shift();
  }
  const note = running ? "as its machine reported it last" : "over its last run";
  if (!parts.length) return html`<${Card} title="Use" note=${note} wide="w12"><${Empty} title="Nothing is known of its use">${running ? "Its machine reports it now and then." : ran ? "Nothing was reported of its run." : "It has not run."}</${Empty}></${Card}>`;
  return html`<${Card} title="Use" note=${note}><div class="stack">
    <dl class="facts">${parts.map(([name, part]) => html`<dt>${SHOWN[name][0]}</dt><dd><${Part} name=${name} part=${part} /></dd>`)}</dl>
    ${running && points.length > 2 && html`<${Chart} label="Part of what it has that it uses" times=${points.map((one) => one.at)} show=${percent}
      series=${Object.fromEntries(parts.filter(([, part]) => whole(part) > 0).map(([name]) => [SHOWN[name][0], points.map((one) => share(one.parts[name]))]))} />`}
  </div></${Card}>`;
}

/** What it asked for, else what it was given. */
const whole = (part) => part.asked ?? part.given ?? 0;
const share = (part) => (part && whole(part) > 0 ? part.used / whole(part) : null);

function Part({ name, part }) {
  const [, show] = SHOWN[name];
  const of = whole(part);
  const over = part.asked > 0 && part.used > part.asked;
  const text = `${show(part.used)}${of > 0 ? ` of ${show(of)} ${part.asked ? "asked for" : "of its slot"}, ${percent(share(part))}` : ""}`;
  return html`<span class=${over ? "bad" : ""}>${text}</span><${Bar} size="thin" total=${Math.max(part.used, of) || 1} label=${text}
    parts=${[{ label: "used", value: Math.min(part.used, of || part.used), tone: "s-Claimed" }, { label: "above the request", value: over ? part.used - part.asked : 0, tone: "s-Held" }]} />`;
}
