// How busy a machine was while this page was open: nobody keeps that of each machine.
import { html, useRef } from "../lib/html.js";
import { isNumber, percent } from "../lib/format.js";
import { Chart } from "./chart.js";

const KEPT = 500;
const LEAST_S = 5;

/** @param {{about: Record<string, any>, slots: Record<string, any>[]}} props a machine and its slots */
export function MachineUse({ about, slots }) {
  const kept = useRef({ name: "", seen: null, points: [] });
  if (kept.current.name !== about.Machine) kept.current = { name: about.Machine, seen: null, points: [] };
  const { points, seen } = kept.current;
  const at = Date.now() / 1000;
  if (seen !== slots && at > (points.at(-1)?.at ?? 0) + LEAST_S) {
    kept.current.seen = slots;
    points.push({ at, ...parts(about, slots) });
    if (points.length > KEPT) points.shift();
  }
  if (points.length < 3) return html`<p class="soft">How busy it is is drawn here while this page is open.</p>`;
  const series = Object.fromEntries(["Load per cpu", "Cpus claimed", "Memory claimed"].map((name) => [name, points.map((point) => point[name])]));
  return html`<${Chart} label="How busy it was since this page was opened" times=${points.map((point) => point.at)} series=${series} show=${percent} />`;
}

/** Of what the machine has: its load by its cpus, and what is claimed. */
function parts(about, slots) {
  const claimed = slots.filter((slot) => slot.State === "Claimed" || slot.State === "Preempting");
  const share = (amount, whole) => (isNumber(amount) && whole > 0 ? amount / whole : null);
  const sum = (name) => claimed.reduce((all, slot) => all + (slot[name] ?? 0), 0);
  return { "Load per cpu": share(about.TotalLoadAvg, about.TotalCpus), "Cpus claimed": share(sum("Cpus"), about.TotalCpus), "Memory claimed": share(sum("Memory"), about.TotalMemory) };
}
