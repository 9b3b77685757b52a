// All machines as squares: one look at thousands of them.
import { Card, Empty, Head, Part, Select, Tabs } from "./bits.js";
import { Search } from "./search.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { ago, count, duration, number } from "../lib/format.js";
import { change, go, href } from "../lib/route.js";
import { useData } from "../lib/data.js";

const DAY_S = 86400;
const LEAST = 5;
const LARGEST = 22;
/** How high all squares together are, about. */
const HIGH = 450;

/** Steps of a value, each with its colour. upto: the largest value of a step. */
const SHARES = [[0, "none"], [0.25, "up to a quarter"], [0.5, "up to a half"], [0.75, "up to three quarters"], [1, "up to all"], [Infinity, "more than all"]];
const SILENCES = [[60, "within a minute"], [300, "within 5 min"], [600, "within 10 min"], [Infinity, "longer ago"]];
const AGES = [[3600, "within an hour"], [DAY_S, "within a day"], [7 * DAY_S, "within a week"], [30 * DAY_S, "within 30 days"], [Infinity, "longer ago"]];
const TONES = { Asleep: "--c-pink", Draining: "--c-orange", Claimed: "--c-blue", Owner: "--c-grey", Unclaimed: "--c-green" };

/** @type {Record<string, {text: string, steps?: [number, string][], of?: (data: any, place: number, now: number) => number, worst?: boolean}>} */
const COLOURS = {
  state: { text: "state" },
  used: { text: "cpus in use", steps: SHARES, of: (data, place) => share(data.used[place], data.cpus[place]) },
  load: { text: "load a cpu", steps: SHARES, of: (data, place) => share(data.load[place], data.cpus[place]) },
  heard: { text: "last heard of", steps: SILENCES, worst: true, of: (data, place, now) => now - data.heard[place] },
  began: { text: "started", steps: AGES, of: (data, place, now) => now - data.began[place] },
};

const machines = (number) => `${count(number)} ${number === 1 ? "machine" : "machines"}`;
const share = (part, all) => (all > 0 ? part / all : 0);

/** Machines, slots, map. @param {{by: string, search?: string}} props */
export const Ways = ({ by, search }) => html`<${Tabs} label="Lines" tabs=${[
  { text: "Machines", to: href(["machines"], { search }), on: by === "machine" },
  { text: "Slots", to: href(["machines"], { by: "slot", search }), on: by === "slot" },
  { text: "Map", to: href(["machines"], { by: "map", search }), on: by === "map" },
]} />`;

export function MachineMap({ query }) {
  const answer = useData("/v1/overview/machine-map", { types: ["slot.changed", "daemon.*"], every: 15000 });
  const way = query.colour in COLOURS ? query.colour : "state";
  return html`
    <${Head} title="Machines"><${Ways} by="map" search=${query.search} /></${Head}>
    <div class="row filters">
      <${Search} label="Search" hint="part of a name" value=${query.search ?? ""} onSearch=${(search) => change({ search }, true)} />
      <${Select} label="Colour by" value=${way} options=${Object.entries(COLOURS).map(([name, { text }]) => [name, text])} onChange=${(colour) => change({ colour })} />
    </div>
    <${Part} answer=${answer} lines=${6}>${(data) => html`<${Shown} data=${data} way=${way} wanted=${(query.search ?? "").toLowerCase()} />`}</${Part}>`;
}

/** Which step each machine is at, and the steps. */
function steps(data, way, places) {
  const { steps: given, of, worst } = COLOURS[way];
  if (!given || !of) {
    const tones = data.states.map((name) => TONES[name] ?? "--c-grey");
    return { names: data.states, tones, at: places.map((place) => data.state[place]) };
  }
  const shades = given.map((_, step) => shade(step, given.length, worst));
  return { names: given.map(([, text]) => text), tones: shades, at: places.map((place) => given.findIndex(([upto]) => of(data, place, data.at) <= upto)) };
}

/** From the card's colour to the full one; what is late is red. */
const shade = (step, all, worst) => (step === all - 1 && worst ? "--c-red" : `color-mix(in oklab, var(--c-blue) ${Math.round(12 + (88 * step) / (all - 1))}%, var(--card))`);
const css = (tone) => (tone.startsWith("--") ? `var(${tone})` : tone);

function Shown({ data, way, wanted }) {
  const places = data.machine.map((_, place) => place).filter((place) => data.machine[place].toLowerCase().includes(wanted));
  const { names, tones, at } = steps(data, way, places);
  if (!places.length) return html`<${Card} flush><${Empty} title="No such machines">Nothing in the pool fits the search.</${Empty}></${Card}>`;
  const note = `${machines(places.length)}, by name${data.left_out ? `; ${count(data.left_out)} more are not shown` : ""}`;
  return html`<${Card} title=${`By ${COLOURS[way].text}`} note=${note}>
    <ul class="legend">${names.map((name, step) => {
      const here = at.reduce((all, one) => all + (one === step ? 1 : 0), 0);
      return here > 0 && html`<li key=${name}><span class="badge"><span class="dot" style=${{ background: css(tones[step]) }} aria-hidden="true"></span>${name} <b>${count(here)}</b></span></li>`;
    })}</ul>
    <${Squares} data=${data} places=${places} at=${at} tones=${tones} />
  </${Card}>`;
}

/** What is said of one machine. */
function words(data, place) {
  const load = `load ${number(data.load[place])}`;
  const heard = data.heard[place] ? `heard of ${ago(data.heard[place])}` : "";
  const began = data.began[place] ? `up for ${duration(Date.now() / 1000 - data.began[place])}` : "";
  return [`${data.machine[place]}: ${data.states[data.state[place]].toLowerCase()}`, `${number(data.used[place])} of ${number(data.cpus[place])} cpus in use`, load, heard, began].filter(Boolean).join(", ");
}

function Squares({ data, places, at, tones }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const probe = useRef(/** @type {HTMLSpanElement | null} */ (null));
  const [width, setWidth] = useState(0);
  const [chosen, choose] = useState(-1);
  const size = Math.max(LEAST, Math.min(LARGEST, Math.floor(Math.sqrt((width * HIGH) / places.length))));
  const columns = Math.max(1, Math.floor(width / size));
  const height = Math.ceil(places.length / columns) * size;

  useEffect(() => {
    const box = canvas.current?.parentElement;
    if (!box) return undefined;
    const seen = new ResizeObserver(() => setWidth(box.clientWidth));
    seen.observe(box);
    return () => seen.disconnect();
  }, []);
  useEffect(() => {
    const draw = () => {
      const element = canvas.current;
      const pen = element?.getContext("2d");
      if (!element || !pen || !probe.current || !width) return;
      const scale = devicePixelRatio || 1;
      element.width = width * scale;
      element.height = height * scale;
      pen.scale(scale, scale);
      const style = probe.current.style;
      const colour = (text) => {
        style.color = text;
        return getComputedStyle(/** @type {Element} */ (probe.current)).color;
      };
      const inks = tones.map((tone) => colour(css(tone)));
      const gap = size > 8 ? 2 : 1;
      at.forEach((step, number) => {
        pen.fillStyle = inks[step] ?? inks[0];
        pen.fillRect((number % columns) * size, Math.floor(number / columns) * size, size - gap, size - gap);
      });
      if (chosen >= 0 && chosen < places.length) {
        pen.strokeStyle = colour("var(--ink)");
        pen.lineWidth = 2;
        pen.strokeRect((chosen % columns) * size, Math.floor(chosen / columns) * size, size - gap, size - gap);
      }
    };
    draw();
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", draw);
    addEventListener("roost-theme", draw);
    return () => {
      dark.removeEventListener("change", draw);
      removeEventListener("roost-theme", draw);
    };
  });

  const under = (event) => {
    const column = Math.floor(event.offsetX / size);
    const number = Math.floor(event.offsetY / size) * columns + column;
    return column < columns && number >= 0 && number < places.length ? number : -1;
  };
  const enter = (number) => number >= 0 && number < places.length && go(href(["machine", data.machine[places[number]]]));
  const press = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    if (step) {
      event.preventDefault();
      choose(Math.max(0, Math.min(places.length - 1, chosen < 0 ? 0 : chosen + step)));
    } else if (event.key === "Home" || event.key === "End") {
      event.preventDefault();
      choose(event.key === "Home" ? 0 : places.length - 1);
    } else if (event.key === "Enter") {
      enter(chosen);
    }
  };
  const said = chosen >= 0 && chosen < places.length ? words(data, places[chosen]) : "";
  return html`<p class="soft" role="status">${said || "Point at a square, or go through them by the arrow keys; Enter or a click opens the machine."}</p>
    <div class="map"><span ref=${probe} hidden></span><canvas ref=${canvas} tabindex="0" role="application" aria-label=${`Map of ${machines(places.length)}`} aria-roledescription="map" style=${{ width: `${width}px`, height: `${height}px` }}
      onMouseMove=${(event) => choose(under(event))} onMouseLeave=${() => choose(-1)} onClick=${(event) => enter(under(event))} onKeyDown=${press}></canvas></div>`;
}
