// Every door of the HTTP API, from the gateway's own description of it.
import { Card, Empty, Head, Part } from "../parts/bits.js";
import { html, useState } from "../lib/html.js";
import { useData } from "../lib/data.js";

const METHODS = ["get", "post", "put", "patch", "delete"];

export function Doors() {
  const answer = useData("/openapi.json", { every: 0 });
  const [words, look] = useState("");
  return html`
    <${Head} title="HTTP API" sub=${html`Send <code>Authorization: Bearer TOKEN</code>. Programs read <a href="/openapi.json">openapi.json</a>; Python has <code>roost.Client</code>.`}>
      <label class="field"><span>Search</span><input class="input" type="search" data-search value=${words} placeholder="part of a door" onInput=${(event) => look(event.currentTarget.value)} /></label>
    </${Head}>
    <${Part} answer=${answer} lines=${12}>${(description) => {
      const found = doors(description).filter((door) => `${door.method} ${door.path} ${door.summary}`.toLowerCase().includes(words.trim().toLowerCase()));
      return found.length
        ? html`<${Card}>${found.map((door) => html`<${Door} key=${door.method + door.path} door=${door} description=${description} />`)}</${Card}>`
        : html`<${Card}><${Empty} title="No door like that" /></${Card}>`;
    }}</${Part}>`;
}

/** @param {any} description an OpenAPI document */
const doors = (description) =>
  Object.entries(description.paths ?? {}).flatMap(([path, methods]) =>
    METHODS.filter((method) => method in methods).map((method) => ({ path, method: method.toUpperCase(), ...methods[method] })),
  );

function Door({ door, description }) {
  const given = [...(door.parameters ?? []).map((one) => [`${one.name} (${one.in}${one.required ? ", needed" : ""})`, one.description ?? kind(one.schema)]), ...bodies(door, description)];
  const answers = Object.entries(door.responses ?? {}).map(([status, one]) => [status, one.description]);
  return html`<details class="door">
    <summary><b class="mono">${door.method}</b> <code>${door.path}</code> <span class="soft"><${Marked} text=${first(door.description ?? door.summary)} /></span></summary>
    <p><${Marked} text=${door.description} /></p>
    ${[["Give it", given], ["Answers", answers]].map(
      ([title, rows]) => rows.length > 0 && html`<h2>${title}</h2><dl class="facts">${rows.map(([name, text]) => html`<dt>${name}</dt><dd><${Marked} text=${text} /></dd>`)}</dl>`,
    )}
  </details>`;
}

/** A text's first sentence, without its full stop. */
const first = (text) => text.split(/(?<!\.)\.(?=\s+[A-Z])/)[0].replace(/\.$/, "");

/** Text with `code` in it. */
const Marked = ({ text }) => String(text ?? "").split("`").map((part, place) => (place % 2 ? html`<code>${part}</code>` : part));

/** What a body holds, field by field. */
function bodies(door, description) {
  return Object.entries(door.requestBody?.content ?? {}).flatMap(([type, one]) => {
    const schema = resolve(one.schema, description);
    const fields = Object.entries(schema?.properties ?? {});
    return fields.length ? fields.map(([name, field]) => [`${name} (body)`, field.description ?? kind(resolve(field, description))]) : [["body", type]];
  });
}

const resolve = (schema, description) => (schema?.$ref ? description.components?.schemas?.[schema.$ref.split("/").at(-1)] : schema);
const kind = (schema) => schema?.enum?.join(", ") ?? schema?.const ?? schema?.type ?? "";
