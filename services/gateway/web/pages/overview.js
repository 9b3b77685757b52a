// The pool at a glance.
import { Ago, Bar, Bones, Card, Empty, Head, Legend, Meter, Name, Stat, Trouble, colour } from "../parts/bits.js";
import { History, useSamples } from "../parts/history.js";
import { html } from "../lib/html.js";
import { count, duration, number, percent } from "../lib/format.js";
import { href } from "../lib/route.js";
import { useData } from "../lib/data.js";
import { INTERNAL } from "../lib/words.js";
import { Attention } from "../parts/attention.js";
import { Feed, useFeed } from "../parts/feed.js";

const STATES = ["Claimed", "Unclaimed", "Owner", "Matched", "Preempting", "Drained", "Backfill"];
const EVENTS = ["job.*", "had.leader", "negotiation.cycle", "daemon.*", "accountant.*"];

/** What parts of the answer are about, for who can not have them. */
const PARTS = { slots: "how slots stand", queue: "how many jobs there are", users: "who has most jobs", negotiators: "the last cycle", hads: "who leads", holds: "why jobs are held" };
/** Reasons for holding jobs that are listed. */
const HOLDS = 8;

export function Overview({ query }) {
  const answer = useData("/v1/overview", { types: EVENTS, every: 5000 });
  const recent = useSamples(answer.data);
  const feed = useFeed(EVENTS, 50);
  const happened = feed.events.filter((event) => !INTERNAL.has(event.type)).slice(0, 8);
  const data = answer.data;
  if (!data) return html`<${Head} title="Overview" /><${Trouble} error=${answer.error} /><div class="grid">${[1, 2, 3, 4].map(() => html`<section class="card w3"><${Bones} big lines=${2} /></section>`)}<section class="card w12"><${Bones} lines=${6} /></section></div>`;
  const { slots, queue, waits, users } = data;
  const states = slots.error ? [] : [...STATES, ...Object.keys(slots.states).filter((name) => !STATES.includes(name))].filter((name) => slots.states[name]);
  const parts = states.map((name) => ({ label: name, value: slots.states[name].slots, tone: colour(name), unit: slots.states[name].slots === 1 ? "slot" : "slots", to: href(["machines"], { by: "slot", state: name }), note: `${number(slots.states[name].cpus)} ${slots.states[name].cpus === 1 ? "cpu" : "cpus"}` }));
  const cores = states.map((name) => ({ label: name, value: slots.states[name].cpus, tone: colour(name) }));
  const leader = Array.isArray(data.negotiators) ? data.negotiators.find((one) => one.NegotiatorIsActive) : null;
  const cycle = leader?.cycles?.[0];
  return html`
    <${Head} title="Overview" />
    <${Trouble} error=${answer.error} />
    ${Object.entries(PARTS).map(([part, what]) => data[part]?.error && html`<p class="notice" role="alert">Not known now, and asked again: ${what} (${data[part].error})</p>`)}
    <div class="grid">
      <${Attention} />
      <${Stat} name="Utilisation" value=${slots.error ? "–" : percent(slots.utilisation)} under=${slots.error ? "" : `${number(slots.used_cpus)} of ${number(slots.cpus)} cpus claimed${slots.gpus ? `, ${number(slots.gpus)} GPUs` : ""}`}>
        <${Meter} part=${slots.utilisation} label=${`${percent(slots.utilisation)} of all cpus are claimed`} />
      </${Stat}>
      <${Stat} name="Waiting time" value=${duration(waits.p50)} unit="median" under=${waits.count ? `90 % within ${duration(waits.p90)}, 99 % ${duration(waits.p99)}; ${count(waits.count)} starts in the last hour` : "nothing started in the last hour"} />
      <${Stat} name="Running jobs" wide="w2" value=${count(queue.running)} under=${html`<a href=${href(["jobs"], { status: "Running" })}>of ${count(queue.total)} in ${count(queue.schedds)} ${queue.schedds === 1 ? "queue" : "queues"}</a>`} />
      <${Stat} name="Idle jobs" wide="w2" value=${count(queue.idle)} under=${html`<a href=${href(["jobs"], { status: "Held" })}>${count(queue.held)} held</a>`} />
      <${Stat} name="Failed jobs" wide="w2" value=${html`<span class=${data.ends?.failed ? "bad" : ""}>${count(data.ends?.failed ?? 0)}</span>`} unit="last hour" under=${html`<a href=${href(["jobs"], { history: "true", status: "Failed" })}>of ${count(data.ends?.count ?? 0)} that ended</a>`} />

      ${data.holds?.length > 0 && html`<${Card} title="Why jobs are held" flush side=${html`<a href=${href(["jobs"], { status: "Held" })}>All held jobs</a>`}>
        <table><caption class="unseen">Held jobs by reason</caption><thead><tr><th scope="col" class="num">Jobs</th><th scope="col" class="most">Reason</th><th scope="col" class="num">Code</th><th scope="col">First</th></tr></thead>
          <tbody>${data.holds.slice(0, HOLDS).map((line) => html`<tr key=${`${line.code} ${line.reason}`}><td class="num">${count(line.count)}</td><td class="wrap">${line.reason}</td><td class="num">${line.code ?? "–"}</td><td><a href=${href(["job", line.first], { schedd: line.schedd })}>${line.first}</a></td></tr>`)}</tbody></table>
        ${data.holds.length > HOLDS && html`<p class="pager">${count(data.holds.slice(HOLDS).reduce((sum, line) => sum + line.count, 0))} more jobs for ${count(data.holds.length - HOLDS)} other reasons: <code>roost q -hold-codes</code></p>`}</${Card}>`}
      <${Card} title="Slots by state" wide="w8" side=${html`<a href=${href(["machines"])}>Machines</a>`} note=${slots.error ? "" : `${count(slots.slots)} ${slots.slots === 1 ? "slot" : "slots"}, ${number(slots.cpus)} ${slots.cpus === 1 ? "cpu" : "cpus"}`}>
        ${parts.length
          ? html`<div class="stack"><div><p class="soft">Slots</p><${Bar} size="tall" parts=${parts} label=${`Slots: ${parts.map((p) => `${p.label} ${p.value}`).join(", ")}`} /></div>
              <div><p class="soft">Cpus</p><${Bar} size="tall" parts=${cores} label=${`Cpus: ${cores.map((p) => `${p.label} ${p.value}`).join(", ")}`} /></div></div><${Legend} parts=${parts} />`
          : html`<${Empty} title="No slots">No startd has told of any yet.</${Empty}>`}
      </${Card}>
      <${Card} title="Negotiation" wide="w4" side=${html`<a href=${href(["negotiation"])}>Cycles</a>`}>
        ${leader
          ? html`<dl class="facts">
              <dt>Leader</dt><dd>${leader.Name}, epoch ${leader.Epoch}</dd>
              <dt>Cycles</dt><dd>${count(leader.Cycles)}</dd>
              ${cycle && html`<dt>Last one</dt><dd><${Ago} at=${cycle.end ?? cycle.at} /></dd><dt>It took</dt><dd>${duration(cycle.duration_s)}</dd><dt>Matches</dt><dd>${count(cycle.matches)}</dd><dt>Rejections</dt><dd>${count(cycle.rejections)}</dd>`}
            </dl>`
          : html`<${Empty} title="Nobody leads">No negotiator says that it is active.</${Empty}>`}
      </${Card}>

      <${History} recent=${recent} states=${STATES} query=${query} />

      <${Card} title="Who has most jobs" wide="w5" flush side=${html`<a href=${href(["shares"])}>Fair share</a>`}>
        ${users.lines?.length
          ? html`<table><caption class="unseen">Submitters with most jobs</caption><thead><tr><th scope="col">Submitter</th><th scope="col" class="num">Running</th><th scope="col" class="num">Idle</th><th scope="col" class="num">Held</th></tr></thead>
              <tbody>${users.lines.map((line) => html`<tr key=${line.name}><th scope="row" class="wrap"><a href=${href(["jobs"], { user: line.name })}><${Name} text=${line.name} /></a></th><td class="num">${count(line.running)}</td><td class="num">${count(line.idle)}</td><td class="num">${count(line.held)}</td></tr>`)}</tbody></table>`
          : html`<${Empty} title="Nobody has jobs" />`}
      </${Card}>
      <${Card} title="Now" wide="w7" flush side=${html`<a href=${href(["events"])}>All events</a>`}>
        <${Feed} events=${happened} empty="Nothing has happened since the gateway was started." />
      </${Card}>
    </div>`;
}
