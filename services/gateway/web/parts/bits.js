// Small pieces that all pages use.
import { html, useEffect } from "../lib/html.js";
import { ago, date, duration, moment, number, percent } from "../lib/format.js";
import { useNow } from "../lib/data.js";

/** The head of a page, and its title. @param {{title: string, sub?: any, crumb?: any, children?: any}} props */
export function Head({ title, sub, crumb, children }) {
  useEffect(() => {
    document.title = `${title} · Roost`;
  }, [title]);
  return html`<div class="head">
    ${crumb && html`<p class="crumb">${crumb}</p>`}
    <h1 tabindex="-1">${title}</h1>
    ${children && html`<div class="row spread">${children}</div>`}
    ${sub && html`<p class="sub">${sub}</p>`}
  </div>`;
}

/** @param {{title?: string, note?: any, side?: any, wide?: string, flush?: boolean, children?: any}} props */
export function Card({ title, note, side, wide = "w12", flush, children }) {
  return html`<section class="card ${wide} ${flush ? "flush" : ""}" aria-label=${title}>
    ${title && html`<header><h2>${title}</h2>${note && html`<span class="note">${note}</span>`}${side && html`<span class="spread">${side}</span>`}</header>`}
    ${children}
  </section>`;
}

/** @param {{name: string, value: any, unit?: string, under?: any, wide?: string, children?: any}} props */
export function Stat({ name, value, unit, under, wide = "w3", children }) {
  return html`<section class="card stat ${wide}" aria-label=${name}>
    <p class="name">${name}</p>
    <p class="value">${value}${unit && html` <small>${unit}</small>`}</p>
    <p class="under">${under}</p>
    ${children}
  </section>`;
}

/** @param {{lines?: number, big?: boolean}} props */
export const Bones = ({ lines = 3, big }) => html`<div role="status" aria-label="Loading">
  ${big && html`<span class="bone big"></span>`}
  ${Array.from({ length: lines }, (_, n) => html`<span class="bone" style=${{ width: `${94 - ((n * 17) % 40)}%` }}></span>`)}
</div>`;

/** @param {{title: string, children?: any}} props */
export const Empty = ({ title, children }) => html`<div class="empty"><b>${title}</b>${children && html`<span>${children}</span>`}</div>`;

/** What went wrong, while what was known before is still shown. */
export const Trouble = ({ error }) =>
  error ? html`<p class="notice bad" role="alert">${error.message}${error.at ? html`; what is shown is as of <${At} at=${error.at} />` : ""}</p>` : null;

/** What stands in place of an empty table's words where it is not known whether it is empty. */
export const Unknown = () => html`<${Empty} title="Not known">The gateway has not answered; it is asked again.</${Empty}>`;

/** What a page shows for a part that has no answer yet, or none. @param {{answer: any, lines?: number, children: (data: any) => any}} props */
export function Part({ answer, lines = 4, children }) {
  if (answer.data !== undefined) return html`<${Trouble} error=${answer.error} />${children(answer.data)}`;
  if (answer.error) return html`<${Trouble} error=${answer.error} />`;
  return html`<${Bones} lines=${lines} />`;
}

/** A long name that breaks after its dots and its @. @param {{text: string}} props */
export const Name = ({ text }) => html`<span class="name">${String(text ?? "").split(/(?<=[.@_/])/).map((part, place) => (place ? html`<wbr />${part}` : part))}</span>`;

/**
 * What the journal keeps; where it has nothing, that is said, with `instead`.
 * @param {{answer: any, what: string, lines?: number, instead?: any, children: (found: any) => any}} props
 */
export function Recorded({ answer, what, lines, instead, children }) {
  return html`<${Part} answer=${answer} lines=${lines}>${(data) =>
    data.found
      ? children(data.found)
      : html`${data.missing === "no journal daemon"
            ? html`<${Empty} title="No journal daemon">${what} is kept by the journal.</${Empty}>`
            : html`<${Empty} title="Nothing recorded">${data.missing}</${Empty}>`}${instead}`}</${Part}>`;
}

/** A state with its colour, which never stands alone. @param {{state: string, kind?: string, text?: any}} props */
export const Badge = ({ state, kind = "slot", text }) =>
  html`<span class="badge"><span class="dot ${colour(state, kind)}" aria-hidden="true"></span>${text ?? words(state)}</span>`;

export const colour = (state, kind) => (kind === "job" && state === "Idle" ? "s-Idle-job" : `s-${state}`);
export const words = (state) => (state === "TransferringOutput" ? "Transferring output" : state || "–");

/**
 * Parts of a whole side by side. A picture for the eye: the legend beside it says the same in words.
 * @param {{parts: {label: string, value: number, tone: string}[], total?: number, size?: string, label?: string}} props
 */
export function Bar({ parts, total, size = "", label }) {
  const sum = total || parts.reduce((all, part) => all + part.value, 0) || 1;
  const text = label ?? parts.map((part) => `${part.label} ${number(part.value)}`).join(", ");
  return html`<div class="bar ${size}" role="img" aria-label=${text} title=${text}>
    ${parts
      .filter((part) => part.value > 0)
      .map((part) => html`<span key=${part.label} class="grow ${part.tone}" style=${{ width: `${(100 * part.value) / sum}%` }}></span>`)}
  </div>`;
}

/** @param {{parts: {label: string, value: number, unit?: string, tone: string, to?: string, note?: string}[]}} props */
export const Legend = ({ parts }) => html`<ul class="legend">
  ${parts.map(
    (part) => html`<li key=${part.label}><span class="badge"><span class="dot ${part.tone}" aria-hidden="true"></span>
      ${part.to ? html`<a href=${part.to}>${part.label}</a>` : part.label} <b>${number(part.value)}${part.unit && ` ${part.unit}`}</b></span>
      ${part.note && html` <span class="soft">${part.note}</span>`}</li>`,
  )}
</ul>`;

/** How full something is. @param {{part: number, label: string, tone?: string}} props */
export const Meter = ({ part, label, tone = "s-Claimed" }) =>
  html`<div class="meter"><${Bar} size="thin" total=${1} label=${label} parts=${[{ label, value: Math.min(1, Math.max(0, part || 0)), tone }]} /></div>`;

/** A moment as an age that moves on, with the date on top. */
export function Ago({ at }) {
  const now = useNow(at > Date.now() / 1000 - 120 ? 1000 : 15000);
  return html`<time title=${date(at)}>${ago(at, now)}</time>`;
}

/** How long since a moment. */
export function Since({ at }) {
  const now = useNow(at > Date.now() / 1000 - 120 ? 1000 : 15000);
  return html`<time title=${date(at)}>${at > 0 ? duration(Math.floor(now - at)) : "–"}</time>`;
}

export const At = ({ at }) => html`<time title=${date(at)}>${moment(at)}</time>`;

/** @param {{facts: [string, any][]}} props */
export const Facts = ({ facts }) => html`<dl class="facts">
  ${facts.filter(([, value]) => value !== undefined && value !== null && value !== false && value !== "").map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}
</dl>`;

/** Links of which one is the present one. @param {{label: string, tabs: {text: string, to: string, on: boolean}[]}} props */
export const Tabs = ({ label, tabs }) => html`<nav class="tabs" aria-label=${label}>
  ${tabs.map((tab) => html`<a key=${tab.text} href=${tab.to} aria-current=${tab.on ? "true" : undefined}>${tab.text}</a>`)}
</nav>`;

/** @param {{label: string, value: string, options: [string, string][], onChange: (value: string) => void}} props */
export const Select = ({ label, value, options, onChange }) => html`<label class="field"><span>${label}</span>
  <select class="input" value=${value} onChange=${(event) => onChange(event.currentTarget.value)}>
    ${options.map(([key, text]) => html`<option key=${key} value=${key} selected=${key === value}>${text}</option>`)}
  </select></label>`;

export { percent };
