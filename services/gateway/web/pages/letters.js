// Messages that no handler could take.
import { At, Card, Empty, Head, Part } from "../parts/bits.js";
import { Table } from "../parts/table.js";
import { confirm } from "../parts/dialog.js";
import { ask } from "../lib/api.js";
import { html, useState } from "../lib/html.js";
import { count, number } from "../lib/format.js";
import { useData } from "../lib/data.js";

const BODY_SHOWN = 2000;

export function Letters({ level }) {
  const admin = level === "ADMINISTRATOR";
  const answer = useData(admin ? "/v1/dead-letters?limit=200" : "", { every: 10000 });
  const [chosen, choose] = useState(() => new Set());
  const toggle = (id) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    choose(next);
  };
  const letters = answer.data ?? [];
  const ids = letters.map((one) => one.id).filter((id) => chosen.has(id));
  const columns = [
    { name: "Type", cell: (row) => html`<label class="badge"><input type="checkbox" checked=${chosen.has(row.id)} onChange=${() => toggle(row.id)} /> ${row.type || "unreadable"}</label>` },
    { name: "At", cell: (row) => html`<${At} at=${row.at} />` },
    { name: "Reason", kind: "wrap", cell: (row) => row.reason },
    { name: "Queue", kind: "wrap", cell: (row) => row.queue || row.key },
    { name: "Bytes", num: true, cell: (row) => number(row.bytes) },
    { name: "Body", kind: "wrap", cell: (row) => (row.body ? html`<details><summary>show<span class="unseen"> body</span></summary><pre>${JSON.stringify(row.body, null, 1).slice(0, BODY_SHOWN)}</pre></details>` : "") },
  ];
  return html`
    <${Head} title="Dead letters" sub="Messages that no handler could take, with the reason. Nothing else waits for them.">
      ${admin && letters.length > 0 && html`
        <button type="button" class="button" disabled=${!ids.length} onClick=${() => order("requeue", ids, answer.refresh, choose)}>Send again${ids.length ? ` (${count(ids.length)})` : ""} …</button>
        <button type="button" class="button danger" disabled=${!ids.length} onClick=${() => order("discard", ids, answer.refresh, choose)}>Discard${ids.length ? ` (${count(ids.length)})` : ""} …</button>`}
    </${Head}>
    ${!admin
      ? html`<${Card}><${Empty} title="For administrators only">Your token gives ${level}.</${Empty}></${Card}>`
      : html`<${Card} flush><${Part} answer=${answer} lines=${5}>${(rows) => html`<${Table} caption="Dead letters, oldest first" columns=${columns} rows=${rows} id=${(row) => row.id} empty=${html`<${Empty} title="No dead letters">Every message found a handler that took it.</${Empty}>`} />`}</${Part}></${Card}>`}`;
}

const order = (what, ids, refresh, choose) =>
  confirm({
    title: what === "requeue" ? `Send ${count(ids.length)} again?` : `Discard ${count(ids.length)} for good?`,
    text: what === "requeue" ? "They are published where they came from." : "What they said is lost.",
    action: what === "requeue" ? "Send again" : "Discard",
    danger: what === "discard",
    then: async () => {
      const told = await ask(`/v1/dead-letters/${what}`, { method: "POST", body: { ids } });
      choose(new Set());
      refresh();
      return `${count(told.done.length)} of ${count(ids.length)} ${what === "requeue" ? "sent again" : "discarded"}`;
    },
  });
