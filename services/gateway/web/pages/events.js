// Everything that happens, as it happens.
import { Card, Head, Select } from "../parts/bits.js";
import { Feed, useFeed } from "../parts/feed.js";
import { Search } from "../parts/search.js";
import { html, useState } from "../lib/html.js";
import { count } from "../lib/format.js";
import { change } from "../lib/route.js";
import { INTERNAL, said } from "../lib/words.js";

const KINDS = [["", "what happens"], ["*", "everything, also between daemons"], ["job.*", "jobs"], ["slot.*", "slots"], ["claim.*", "claims"], ["negotiation.*", "negotiation"], ["had.*", "availability"], ["accountant.*", "priorities"], ["daemon.*", "daemons"]];
const MOST = 200;

export function Events({ query }) {
  const kind = KINDS.some(([key]) => key === query.type) ? query.type : "";
  const [paused, pause] = useState(false);
  const feed = useFeed([kind || "*"], MOST, paused);
  const wanted = (query.search ?? "").toLowerCase();
  const listed = kind ? feed.events : feed.events.filter((event) => !INTERNAL.has(event.type));
  const shown = wanted ? listed.filter((event) => `${event.type} ${event.job_id ?? ""} ${event.owner ?? ""} ${said(event)}`.toLowerCase().includes(wanted)) : listed;
  const toggle = () => {
    if (paused) feed.flush();
    pause(!paused);
  };
  return html`
    <${Head} title="Events" sub=${`The last ${count(MOST)} that the gateway remembers, then live from the bus.`}>
      <button type="button" class="button" aria-pressed=${paused} onClick=${toggle}>${paused ? `Go on${feed.held ? ` (${count(feed.held)} waiting)` : ""}` : "Pause"}</button>
    </${Head}>
    <div class="row filters">
      <${Search} label="Search" hint="job, user, slot" value=${query.search ?? ""} onSearch=${(search) => change({ search }, true)} />
      <${Select} label="Kind" value=${kind} options=${KINDS} onChange=${(type) => change({ type })} />
    </div>
    ${feed.lost && html`<p class="notice">Some events are missing: there were more than this page could take.</p>`}
    <${Card} flush><${Feed} key=${kind} events=${shown} empty=${feed.events.length ? "None of the last events has this in it." : "Nothing has happened since the gateway was started."} /></${Card}>`;
}
