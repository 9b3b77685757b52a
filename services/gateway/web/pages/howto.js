// docs/how-to.md, read where it is needed: the questions, or one of them with its answer.
import { Bones, Card, Empty, Head, Trouble } from "../parts/bits.js";
import { html, useEffect, useState } from "../lib/html.js";
import { href } from "../lib/route.js";

/** @typedef {{title: string, slug: string, group: string, blocks: {kind: "code" | "text" | "item", text: string}[]}} Question */

/** "Find out why a job is idle" -> "find-out-why-a-job-is-idle". @param {string} title */
const slug = (title) => title.toLowerCase().replaceAll(" ", "-").replace(/[^a-z0-9_-]/g, "");

/** The questions of the page. It has headings, paragraphs, lists and blocks of code only. @param {string} text @returns {Question[]} */
export function questions(text) {
  const found = [];
  let group = "";
  let code = null;
  let open = false;
  for (const line of text.split("\n")) {
    const blocks = found.at(-1)?.blocks ?? [];
    if (line.startsWith("```")) {
      if (code === null) code = [];
      else {
        blocks.push({ kind: "code", text: code.join("\n") });
        code = null;
      }
      open = false;
    } else if (code !== null) code.push(line);
    else if (line.startsWith("### ")) {
      found.push({ title: line.slice(4), slug: slug(line.slice(4)), group, blocks: [] });
      open = false;
    } else if (line.startsWith("## ")) group = line.slice(3);
    else if (!line.trim()) open = false;
    else if (line.startsWith("- ")) {
      blocks.push({ kind: "item", text: line.slice(2) });
      open = true;
    } else if (open && blocks.length) blocks.at(-1).text += ` ${line.trim()}`;
    else {
      blocks.push({ kind: "text", text: line });
      open = true;
    }
  }
  return found;
}

/** Code, and links: those within the page lead on, of others the words are left. @param {string} text */
function inline(text) {
  return text.split(/(`[^`]+`|\[[^\]]+\]\([^)]+\))/).map((part) => {
    if (part.startsWith("`")) return html`<code>${part.slice(1, -1)}</code>`;
    const link = /^\[([^\]]+)\]\(([^)]+)\)$/.exec(part);
    if (!link) return part;
    return link[2].startsWith("#") ? html`<a href=${href(["how-to", link[2].slice(1)])}>${link[1]}</a>` : html`<span title=${`docs/${link[2]}`}>${link[1]}</span>`;
  });
}

export function HowTo({ path }) {
  const [found, set] = useState(/** @type {Question[] | null} */ (null));
  const [wrong, setWrong] = useState("");
  useEffect(() => {
    fetch(new URL("../how-to.txt", import.meta.url)).then(
      async (answer) => (answer.ok ? set(questions(await answer.text())) : setWrong(`the gateway answered ${answer.status}`)),
      () => setWrong("the gateway does not answer"),
    );
  }, []);
  const one = found?.find((question) => question.slug === path[1]);
  const groups = [...new Set((found ?? []).map((question) => question.group))];
  if (one) {
    return html`<${Head} title=${one.title} crumb=${html`<a href=${href(["how-to"])}>How do I …</a>`} />
      <${Card} title="Answer" note="docs/how-to.md"><div class="stack">${one.blocks.map((block) => (block.kind === "code"
        ? html`<pre class="output" tabindex="0" role="region" aria-label="Commands">${block.text}</pre>`
        : html`<p>${block.kind === "item" && "· "}${inline(block.text)}</p>`))}</div></${Card}>`;
  }
  return html`<${Head} title="How do I …" sub="Questions of users, administrators and operators, with the commands that answer them." />
    ${wrong && html`<${Trouble} error=${{ message: wrong }} />`}
    ${!found && !wrong && html`<${Card}><${Bones} lines=${8} /></${Card}>`}
    ${found && path[1] && html`<${Card}><${Empty} title="There is no such question">All there are stand below.</${Empty}></${Card}>`}
    <div class="grid">${groups.map((group) => html`<${Card} key=${group} title=${group} wide="w4"><ul class="findings">
      ${found.filter((question) => question.group === group).map((question) => html`<li key=${question.slug}><span class="dot s-Unclaimed" aria-hidden="true"></span><a href=${href(["how-to", question.slug])}>${question.title}</a></li>`)}</ul></${Card}>`)}</div>`;
}
