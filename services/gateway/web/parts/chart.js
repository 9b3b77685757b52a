// Lines and areas over time. uPlot is loaded when the first chart is drawn.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { count, isNumber, moment, number } from "../lib/format.js";
import { csv, save } from "../lib/save.js";
import { once, style } from "../lib/vendor.js";

export const TONES = ["--c-blue", "--c-orange", "--c-green", "--c-red", "--c-pink", "--c-sky", "--c-yellow", "--c-grey"];
const TONE_OF = {
  Claimed: "--c-blue", Running: "--c-blue", running: "--c-blue", Unclaimed: "--c-grey", Owner: "--c-orange", Idle: "--c-orange",
  idle: "--c-orange", Matched: "--c-sky", Preempting: "--c-red", Held: "--c-red", held: "--c-red", Drained: "--c-pink", Backfill: "--c-green",
  Completed: "--c-green",
};
const HEIGHT = 210;

/** uPlot with its style sheet. */
const library = once(async () => (await Promise.all([import("../vendor/uplot.js"), style("uplot.css")]))[0].default);

const paint = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The value of a light-dark() custom property as a colour that a canvas takes. */
export function resolved(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  probe.hidden = true;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found || paint(name);
}

/**
 * @param {{label: string, times: number[], series: Record<string, (number | null)[]>, stacked?: boolean, unit?: string,
 *   show?: (value: number) => string, relative?: boolean, least?: number, span?: {from: number, to: number}, steps?: boolean,
 *   marks?: number[], zoom?: (from: number, to: number) => void}} props
 *   times: seconds since 1970, or from now on where `relative`; span: what the axis shows, else what there is; steps: a
 *   value holds for all of the time since the one before; marks: moments that are drawn across; zoom: told what was
 *   chosen by dragging. Charts with a span show the same moment where the pointer is.
 */
export function Chart({ label, times, series, stacked, unit = "", show = number, relative, least = 0, span, steps, marks = [], zoom }) {
  const box = useRef(null);
  const plot = useRef(null);
  const [theme, setTheme] = useState(0);
  const [held, hold] = useState(false);
  const names = Object.keys(series);
  // What comes while somebody drags waits: a chart that is drawn anew forgets where the dragging began.
  const shape = useRef("");
  if (!held) shape.current = `${names.join("\n")}${stacked}${theme}`;
  const lines = names.map((name) => series[name]);
  const drawn = stacked ? stack(lines) : lines;
  const order = stacked ? [...names.keys()].reverse() : [...names.keys()];
  const data = [times, ...order.map((number) => drawn[number])];
  const latest = useRef(/** @type {any} */ ({}));
  latest.current = { data, lines, order, show, unit, span, marks, zoom };

  useEffect(() => {
    const again = () => setTheme((n) => n + 1);
    const media = matchMedia("(prefers-color-scheme: dark)");
    media.addEventListener("change", again);
    addEventListener("roost-theme", again);
    return () => {
      media.removeEventListener("change", again);
      removeEventListener("roost-theme", again);
    };
  }, []);

  useEffect(() => {
    let gone = false;
    let watch = null;
    void library().then((UPlot) => {
      if (gone || !box.current) return;
      const axis = { stroke: resolved("--soft"), grid: { stroke: resolved("--line"), width: 1 }, ticks: { stroke: resolved("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
      const options = {
        width: Math.max(200, box.current.clientWidth),
        height: HEIGHT,
        ms: 1e-3,
        tzDate: (at) => new Date(at * 1000),
        cursor: {
          points: { size: 7 },
          drag: { x: Boolean(zoom), y: false, setScale: false, dist: 6 },
          ...(span ? { sync: { key: "time", scales: ["x", null], filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } } } : {}),
        },
        hooks: { draw: [(drawn) => mark(drawn, latest.current.marks, resolved("--soft"))], setSelect: [(drawn) => choose(drawn, latest.current.zoom)] },
        scales: { x: { time: !relative, range: (plot, first, last) => (latest.current.span ? [latest.current.span.from, latest.current.span.to] : extent(plot, first, last)) }, y: { range: (_, low, high) => [Math.min(least, low ?? 0), (high ?? 0) > least ? high * 1.08 : least + 1] } },
        axes: [
          { ...axis, space: LABEL_WIDTH, ...(relative ? { incrs: SPANS, values: (_, ticks) => ticks.map(hours) } : { values: clock }) },
          { ...axis, size: wide, ...(show === count ? { incrs: WHOLE } : {}), values: (_, ticks) => ticks.map((tick) => latest.current.show(tick)) },
        ],
        series: [
          { label: relative ? "in" : "at", value: (plot, at) => { const shown = at ?? plot.data[0].at(-1); return isNumber(shown) ? (relative ? hours(shown) : moment(shown)) : "–"; } },
          ...order.map((number) => {
            const name = names[number];
            const colour = resolved(TONE_OF[name] ?? TONES[number % TONES.length]);
            return {
              label: name,
              stroke: colour,
              width: 1.6,
              fill: stacked ? colour : undefined,
              points: { show: lonely },
              paths: steps ? UPlot.paths.stepped({ align: -1 }) : undefined,
              value: (_, __, ___, place) => told(latest.current, number, place),
            };
          }),
        ],
      };
      box.current.replaceChildren();
      plot.current = new UPlot(options, latest.current.data, box.current);
      watch = new ResizeObserver(() => box.current && plot.current?.setSize({ width: Math.max(200, box.current.clientWidth), height: HEIGHT }));
      watch.observe(box.current);
    }, () => setTimeout(() => setTheme((n) => n + 1), 2000));
    return () => {
      gone = true;
      watch?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape.current]);

  useEffect(() => {
    if (!held) plot.current?.setData(latest.current.data);
  }, [times, series, marks.join(), held]);
  const press = () => {
    hold(true);
    addEventListener("mouseup", () => hold(false), { once: true });
  };

  const saved = () => save(`${label.toLowerCase().replaceAll(" ", "-")}.csv`, "text/csv", csv([relative ? "seconds" : "time", ...names], times.map((at, place) => [relative ? at : new Date(at * 1000).toISOString(), ...lines.map((line) => line[place])])));
  const last = names.map((name) => `${name} ${show(series[name].findLast(isNumber) ?? 0)}${unit}`).join(", ");
  return html`<figure><div ref=${box} class="u-wrap" role="img" onMouseDown=${zoom && press} aria-label=${`${label}. Last values: ${last}`}></div>
    <button type="button" class="button small plain saves" onClick=${saved}>CSV<span class="unseen"> of ${label}</span></button></figure>`;
}

/** Dashed lines across the drawing, at these moments. */
function mark(drawn, marks, colour) {
  const { ctx, bbox } = drawn;
  const { min, max } = drawn.scales.x;
  ctx.save();
  ctx.strokeStyle = colour;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const at of marks) {
    if (at < min || at > max) continue;
    const x = Math.round(drawn.valToPos(at, "x", true));
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

/** What was dragged over is told, and shown no longer: the page draws the charts anew. */
function choose(drawn, zoom) {
  const { left, width } = drawn.select;
  if (!zoom || width < 6) return;
  const [from, to] = [left, left + width].map((x) => drawn.posToVal(x, "x"));
  drawn.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  zoom(from, to);
}

/** Steps of an axis of things that are counted one by one. */
const WHOLE = [...Array(10).keys()].flatMap((power) => [1, 2, 5].map((step) => step * 10 ** power));

/** Steps of an axis of time to come, in seconds. */
const SPANS = [60, 300, 600, 1800, ...[1, 2, 3, 6, 12, 24, 48, 96, 240, 720, 2400].map((step) => step * 3600)];

/** Whether a series has too few points for a line to be seen. */
const lonely = (plot, place) => plot.data[place].filter(isNumber).length < 3;

/** What the legend says of a line: its value where the pointer is, else the last one with the least and the most. */
function told({ lines, show, unit }, number, place) {
  const line = lines[number] ?? [];
  if (place !== null && place !== undefined) return isNumber(line[place]) ? `${show(line[place])}${unit}` : "–";
  const known = line.filter(isNumber);
  if (!known.length) return "–";
  const [low, high] = known.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
  return `${show(known.at(-1))}${unit}${low < high ? ` (${show(low)} to ${show(high)})` : ""}`;
}

/** Pixels that a label of the axis of time takes, at least. */
const LABEL_WIDTH = 84;

/** A minute at least; a single point has the axis spread over years otherwise. */
const extent = (plot, first, last) => {
  const end = (plot.data[0].length > 1 ? last : first) ?? 0;
  return [Math.min(first ?? 0, end - 60), end];
};

/** Room for the longest of an axis' labels, in pixels. */
const wide = (_, labels) => 26 + 7 * Math.max(3, ...(labels ?? []).map((label) => String(label).length));

/** Each line on top of the ones before; nothing where none of them has a value. */
function stack(lines) {
  const sums = [];
  const known = (place) => lines.some((line) => isNumber(line[place]));
  return lines.map((line) => line.map((value, place) => (known(place) ? (sums[place] = (sums[place] ?? 0) + (value ?? 0)) : null)));
}

const hours = (seconds) => (seconds < 7200 ? `${Math.round(seconds / 60)} min` : seconds < 172800 ? `${number(seconds / 3600)} h` : `${number(seconds / 86400)} d`);

const time = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const second = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const days = new Intl.DateTimeFormat("en-GB", { day: "2-digit", month: "short" });

function clock(_, ticks) {
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : 60;
  const form = step >= 86400 ? days : step >= 60 ? time : second;
  return ticks.map((tick) => form.format(new Date(tick * 1000)));
}
