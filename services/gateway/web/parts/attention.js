// What of the pool needs somebody's attention, gravest first.
import { At, Card, Part } from "./bits.js";
import { html, useState } from "../lib/html.js";
import { count } from "../lib/format.js";
import { href } from "../lib/route.js";
import { useData } from "../lib/data.js";

const EVENTS = ["job.held", "job.released", "daemon.*", "had.leader"];
const TONES = { error: "s-Failed", warning: "s-Owner", note: "s-Unclaimed" };
const SHOWN = 6;

/** Where a finding is looked at: the page, with what it takes. @param {Record<string, string>} about */
function place({ page, name, ...query }) {
  if (!page) return "";
  return href(name ? [page, name] : [page], query);
}

/** "how-to.md#find-out-why-a-job-is-idle" as words. @param {string} help */
function words(help) {
  const [file, section] = help.split("#");
  const said = (section ?? file.replace(/\.md$/, "")).replaceAll("-", " ");
  return { page: `docs/${file}`, title: said.charAt(0).toUpperCase() + said.slice(1), to: file === "how-to.md" && section ? href(["how-to", section]) : "" };
}

export function Attention() {
  const answer = useData("/v1/attention", { types: EVENTS, every: 20000 });
  const found = answer.data?.findings ?? [];
  const note = answer.data && html`as of <${At} at=${answer.data.at} />${answer.data.hidden.length > 0 && `; not shown to your level: ${answer.data.hidden.join(", ")}`}`;
  return html`<${Card} title="Needs attention" note=${note}><${Part} answer=${answer} lines=${2}>${() =>
    found.length
      ? html`<${Findings} found=${found} />`
      : html`<p class="badge"><span class="dot s-Completed" aria-hidden="true"></span>Nothing</p>`}</${Part}></${Card}>`;
}

/** Findings as they come, the first few of many. @param {{found: any[]}} props */
export function Findings({ found }) {
  const [all, show] = useState(false);
  const shown = all ? found : found.slice(0, SHOWN);
  return html`<ul class="findings">${shown.map((one) => html`<${Finding} key=${`${one.code} ${one.text}`} one=${one} />`)}</ul>
    ${found.length > SHOWN && html`<button type="button" class="button small" aria-expanded=${all} onClick=${() => show(!all)}>${all ? "Fewer" : `All ${count(found.length)}`}</button>`}`;
}

function Finding({ one }) {
  const to = place(one.about);
  const help = one.help && words(one.help);
  return html`<li>
    <span class="dot ${TONES[one.level] ?? TONES.note}" aria-hidden="true"></span>
    <div><p><span class="unseen">${one.level}: </span>${to ? html`<a href=${to}>${one.text}</a>` : one.text}</p>
      ${(one.command || help) && html`<p class="soft">${one.command && html`<code>${one.command}</code>`}${one.command && help && " · "}${help && (help.to ? html`<a href=${help.to}>${help.title}</a>` : html`<span>${help.title} (${help.page})</span>`)}</p>`}</div></li>`;
}
