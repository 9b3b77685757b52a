// How busy a machine was: what the pool's history has of it; where nobody keeps one, what this page saw itself.
import { Card, Part } from "./bits.js";
import { Chart } from "./chart.js";
import { Line, Ranges, known, span, useKept, zoom } from "./history.js";
import { html, useRef } from "../lib/html.js";
import { isNumber, percent } from "../lib/format.js";
import { useNow } from "../lib/data.js";
import { url } from "../lib/api.js";

const KEPT = 500;
const LEAST_S = 5;
const TITLE = "How busy it was";

/** @param {{about: Record<string, any>, slots: Record<string, any>[], query: Record<string, string>}} props a machine and its slots */
export function MachineUse({ about, slots, query }) {
  const now = useNow(5000);
  const shown = span(query, now);
  const { from, to } = shown;
  const answer = useKept(url("/v1/overview/machine/history", { name: about.Machine, from, to }));
  const points = useSeen(about, slots);
  const { data } = answer;
  if (data?.missing || (data?.found && !shown.zoomed && !known(data.found))) {
    return html`<${Seen} points=${points} why=${data.missing ?? "nothing is written down of this time yet"} />`;
  }
  return html`<${Ranges} shown=${shown} now=${now} />
    <${Card} title=${TITLE}><${Part} answer=${answer} lines=${7}>${({ found }) => html`<${Line} found=${found} label=${TITLE} show=${percent} span=${shown} zoom=${zoom} />`}</${Part}></${Card}>`;
}

function Seen({ points, why }) {
  const series = Object.fromEntries(["Load per cpu", "Cpus claimed", "Memory claimed"].map((name) => [name, points.map((point) => point[name])]));
  return html`<${Card} title=${TITLE} note=${`${why}: what this page saw since it was opened`}>${points.length < 3
    ? html`<p class="soft">It is drawn here while this page is open.</p>`
    : html`<${Chart} label=${TITLE} times=${points.map((point) => point.at)} series=${series} show=${percent} />`}</${Card}>`;
}

/** What this page has seen of the machine since it was opened. */
function useSeen(about, slots) {
  const kept = useRef({ name: "", seen: null, points: [] });
  if (kept.current.name !== about.Machine) kept.current = { name: about.Machine, seen: null, points: [] };
  const { points, seen } = kept.current;
  const at = Date.now() / 1000;
  if (seen !== slots && at > (points.at(-1)?.at ?? 0) + LEAST_S) {
    kept.current.seen = slots;
    points.push({ at, ...parts(about, slots) });
    if (points.length > KEPT) points.shift();
  }
  return points;
}

/** Of what the machine has: its load by its cpus, and what is claimed. */
function parts(about, slots) {
  const claimed = slots.filter((slot) => slot.State === "Claimed" || slot.State === "Preempting");
  const share = (amount, whole) => (isNumber(amount) && whole > 0 ? amount / whole : null);
  const sum = (name) => claimed.reduce((all, slot) => all + (slot[name] ?? 0), 0);
  return { "Load per cpu": share(about.TotalLoadAvg, about.TotalCpus), "Cpus claimed": share(sum("Cpus"), about.TotalCpus), "Memory claimed": share(sum("Memory"), about.TotalMemory) };
}
