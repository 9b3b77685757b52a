// Events and causes in words.
import { duration, number, progress } from "./format.js";

/** A number of things by its word. @param {number} many */
const counted = (many, one, more = `${one}s`) => `${number(many)} ${many === 1 ? one : more}`;

// Of jobs that were ordered together: how many they are.
const many = (e) => (e.jobs?.length ? `${number(e.jobs.reduce((sum, [first, last]) => sum + last - first + 1, 0))} jobs of the cluster ` : "");

const SAID = {
  "job.submitted": (e) => `${counted(e.count, "job")} submitted as cluster ${e.cluster} by ${e.submitter || e.owner}`,
  "job.matched": (e) => `matched with ${e.slot}`,
  "job.started": (e) => `started ${e.slot ? `on ${e.slot}` : "at the access point"} after ${duration(e.waited_s)}`,
  "job.ended": (e) => `${e.exit_signal ? `ended by signal ${e.exit_signal}` : `ended with exit code ${e.exit_code ?? "?"}`} after ${duration(e.ran_s)}`,
  "job.evicted": (e) => `evicted from ${e.slot}: ${e.reason}`,
  "job.held": (e) => `${many(e)}held (code ${e.code}): ${e.reason}`,
  "job.released": (e) => `${many(e)}released${e.reason ? `: ${e.reason}` : ""}`,
  "job.removed": (e) => `${many(e)}removed${e.reason ? `: ${e.reason}` : ""}`,
  "slot.changed": (e) => `${e.slot}: ${e.from_state ? `${e.from_state}/${e.from_activity} → ` : ""}${e.state}/${e.activity}`,
  "claim.made": (e) => `${e.slot} claimed for ${e.submitter}`,
  "claim.ended": (e) => `claim of ${e.slot} ended: ${e.reason}`,
  "negotiation.cycle": (e) => `cycle ${e.cycle} (${e.trigger}): ${counted(e.matches, "match", "matches")}, ${counted(e.rejections, "rejection")} in ${duration(e.duration_s)}`,
  "negotiation.preemption-loop": (e) => `${e.slot} goes to and fro between ${(e.users ?? []).join(" and ")}`,
  "had.leader": (e) => `${e.negotiator} ${e.state === "leader" ? `leads with epoch ${e.epoch}` : `is passive${e.reason ? `: ${e.reason}` : ""}`}`,
  "accountant.changed": (e) => (e.what === "no-quota" ? `${e.submitter} has the configuration's quota again, by ${e.by}` : `${e.what} of ${e.submitter} set to ${e.value ?? "–"} by ${e.by}`),
  "negotiation.offline": (e) => `${number(e.slots.length)} sleeping ${e.slots.length === 1 ? "slot suits" : "slots suit"} jobs that wait: ${e.slots.slice(0, 3).join(", ")}${e.slots.length > 3 ? ", …" : ""}`,
  "rooster.round": (e) => `woke ${e.woken.length ? e.woken.slice(0, 3).join(", ") + (e.woken.length > 3 ? `, … (${number(e.woken.length)})` : "") : "nobody"}${Object.keys(e.failed).length ? `; could not wake ${Object.keys(e.failed).slice(0, 3).join(", ")}` : ""}${e.waiting ? `; ${number(e.waiting)} wait for the next round` : ""}`,
  "defrag.round": (e) => `${number(e.whole)} of ${number(e.machines)} machines whole, ${number(e.draining)} draining${e.why ? `: ${e.why}` : ""}`,
  "daemon.started": (e) => `${e.daemon} started`,
  "job.sorted": (e) => `${counted(Object.keys(e.kinds ?? {}).length, "kind of jobs", "kinds of jobs")} of ${e.schedd}`,
  "job.transferring": (e) => `${e.direction} on its way: ${progress(e.bytes_done, e.bytes_total, e.bytes_per_s)}`,
  "job.unmatched": (e) => `the match with ${e.slot} came to nothing${e.reason ? `: ${e.reason}` : ""}`,
  "job.limit": (e) => `the schedd ${e.schedd} starts ${e.limited === false ? "jobs again" : "no more jobs"}${e.reason ? `: ${e.reason}` : ""}`,
  "negotiation.matched": (e) => `matches of cycle ${e.cycle} for ${counted((e.groups ?? []).length, "request")}`,
  "negotiation.reasons": (e) => `why jobs wait, as of cycle ${e.cycle}: ${counted((e.reasons ?? []).length, "change")}`,
  "negotiation.policy": (e) => `policy of ${e.negotiator}, epoch ${e.epoch}`,
  "accountant.standing": (e) => `standing of ${counted((e.submitters ?? []).length, "submitter")} after cycle ${e.cycle ?? "–"}`,
  "gateway.audit": (e) => [`${e.user || "somebody"} asked ${e.method ?? ""} ${e.path ?? e.operation ?? ""}`.trim(), e.status && `answered ${e.status}`, e.code].filter(Boolean).join(", "),
  "gateway.tokens-changed": (e) => `${counted((e.tokens ?? []).length, "token")} changed or revoked`,
  "daemon.gone": (e) => `${e.daemon} went away${e.ads ? `, with ${counted(e.ads, "ad")}` : ""}`,
  "daemon.reconnected": (e) => `${e.daemon} has a connection again${e.lost ? `; ${counted(e.lost, "event is lost", "events are lost")}` : ""}`,
  "daemon.stopped": (e) => `${e.daemon} stopped: ${e.reason}`,
};
/** Kinds of events by which daemons and the journal tell each other things: few people look for them. */
export const INTERNAL = new Set(["job.sorted", "slot.changed", "negotiation.matched", "negotiation.reasons", "negotiation.policy", "accountant.standing", "gateway.audit"]);
const HIDDEN = new Set(["id", "type", "at", "sender", "job_id", "jobs", "schedd"]);

/** What an event says, without its job. @param {Record<string, any>} event */
export function said(event) {
  try {
    if (SAID[event.type]) return SAID[event.type](event);
  } catch {
    // A field is not what it used to be: shown as it is.
  }
  return Object.entries(event)
    .filter(([key, value]) => !HIDDEN.has(key) && value !== "" && value !== null && typeof value !== "object")
    .map(([key, value]) => `${key} ${value}`)
    .join(", ");
}

const TONES = [
  [/^job\.(started|matched)|^claim\.made/, "s-Claimed"],
  [/^job\.(held|evicted)|preemption|refused|dead/, "s-Held"],
  [/^job\.ended/, "s-Completed"],
  [/^job\.submitted|^job\.released/, "s-Owner"],
  [/^had\.|^daemon\./, "s-Drained"],
  [/^negotiation|^accountant/, "s-Matched"],
];

/** The colour of an event's dot. @param {string} type @param {Record<string, any>} [event] */
export const tone = (type, event) => (event?.failed ? "s-Failed" : TONES.find(([pattern]) => pattern.test(type))?.[1] ?? "s-Unclaimed");
