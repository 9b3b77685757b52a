// What a job uses of what it asked for: now, at its most, and while this page was open.
import { Bar, Card, Empty } from "./bits.js";
import { Chart } from "./chart.js";
import { html, useRef } from "../lib/html.js";
import { memory, number, percent } from "../lib/format.js";

const SHOWN = { cpus: ["Cpus", number], memory: ["Memory", memory], disk: ["Disk", memory], gpus: ["GPUs", number] };
const KEPT = 500;

/**
 * @param {{use: {at: number, parts: Record<string, {used: number, asked: number}>}, running: boolean, id: string}} props used and asked: cpus, MiB
 */
export function Use({ use, running, id }) {
  const kept = useRef({ id: "", points: [] });
  if (kept.current.id !== id) kept.current = { id, points: [] };
  const { points } = kept.current;
  const parts = Object.entries(use?.parts ?? {}).filter(([name]) => SHOWN[name]);
  if (running && use && use.at > (points.at(-1)?.at ?? 0) + 0.9) {
    points.push(use);
    if (points.length > KEPT) points.shift();
  }
  const note = running ? "as its machine reported it last" : "over its last run";
  if (!parts.length) return html`<${Card} title="Use" note=${note} wide="w12"><${Empty} title="Nothing is known of its use yet">${running ? "Its machine reports it now and then." : "It has not run."}</${Empty}></${Card}>`;
  return html`<${Card} title="Use" note=${note}><div class="stack">
    <dl class="facts">${parts.map(([name, part]) => html`<dt>${SHOWN[name][0]}</dt><dd><${Part} name=${name} part=${part} /></dd>`)}</dl>
    ${running && points.length > 2 && html`<${Chart} label="Part of what it asked for that it uses" times=${points.map((one) => one.at)} show=${percent}
      series=${Object.fromEntries(parts.filter(([, part]) => part.asked > 0).map(([name]) => [SHOWN[name][0], points.map((one) => share(one.parts[name]))]))} />`}
  </div></${Card}>`;
}

const share = (part) => (part && part.asked > 0 ? part.used / part.asked : null);

function Part({ name, part }) {
  const [, show] = SHOWN[name];
  const over = part.asked > 0 && part.used > part.asked;
  const text = `${show(part.used)} of ${show(part.asked)} asked for${part.asked > 0 ? `, ${percent(part.used / part.asked)}` : ""}`;
  return html`<span class=${over ? "bad" : ""}>${text}</span><${Bar} size="thin" total=${Math.max(part.used, part.asked) || 1} label=${text}
    parts=${[{ label: "used", value: Math.min(part.used, part.asked || part.used), tone: "s-Claimed" }, { label: "above the request", value: Math.max(0, part.used - part.asked), tone: "s-Held" }]} />`;
}
