// Visits to running jobs: a program beside the job, or its files while it runs. What is printed comes as one long answer.
import { ask, raw, url } from "./api.js";

/** @param {Record<string, any>} row the job @param {Record<string, unknown>} wish @param {AbortSignal} signal @returns {Promise<string>} the visit's name */
export async function begin(row, wish, signal) {
  const { visit } = await ask(url(`/v1/jobs/${encodeURIComponent(row.Id)}/visits`, { schedd: row.Schedd }), { method: "POST", body: wish, signal });
  return visit;
}

/**
 * What a visit prints, until its end: frames of a letter, a length in four bytes, and the bytes.
 * @param {string} visit @param {(kind: string, data: Uint8Array) => void} print kind: "o" standard output, "e" standard error
 * @param {AbortSignal} signal @returns {Promise<{exit_code?: number, exit_signal?: number, reason?: string} | null>} how it ended; null: the connection did
 */
export async function follow(visit, print, signal) {
  const answer = await raw(`/v1/visits/${visit}/output`, { method: "GET", signal });
  const reader = answer.body.getReader();
  let rest = new Uint8Array(0);
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return null;
    const all = new Uint8Array(rest.length + value.length);
    all.set(rest);
    all.set(value, rest.length);
    let at = 0;
    while (all.length - at >= 5) {
      const size = new DataView(all.buffer, at + 1, 4).getUint32(0);
      if (all.length - at - 5 < size) break;
      const kind = String.fromCharCode(all[at]);
      const data = all.subarray(at + 5, at + 5 + size);
      at += 5 + size;
      if (kind === "x") return JSON.parse(new TextDecoder().decode(data));
      if (kind !== "k") print(kind, data);
    }
    rest = all.slice(at);
  }
}

/** Of what is typed so much goes in one request. */
const MOST = 64 * 1024;

/** What is typed goes in its order, one request after the other; what was not taken goes again. */
export class Keyboard {
  /** @param {string} visit @param {(error: Error) => void} failed */
  constructor(visit, failed) {
    this.visit = visit;
    this.failed = failed;
    this.waiting = new Uint8Array(0);
    this.taken = 0;
    this.busy = false;
    this.over = false;
  }

  /** @param {Uint8Array} data */
  type(data) {
    if (this.over) return;
    const all = new Uint8Array(this.waiting.length + data.length);
    all.set(this.waiting);
    all.set(data, this.waiting.length);
    this.waiting = all;
    if (!this.busy) void this.send();
  }

  async send() {
    this.busy = true;
    try {
      while (this.waiting.length && !this.over) {
        const answer = await raw(url(`/v1/visits/${this.visit}/input`, { start: this.taken }), { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: this.waiting.slice(0, MOST) });
        const { taken, ended } = await answer.json();
        this.waiting = this.waiting.slice(taken - this.taken);
        this.taken = taken;
        this.over = ended;
      }
    } catch (error) {
      this.over = true;
      this.failed(error);
    } finally {
      this.busy = false;
    }
  }
}

/** The window's new size; who hangs up has left. @param {string} visit @param {Record<string, unknown>} what */
export const steer = (visit, what) => ask(`/v1/visits/${visit}/steer`, { method: "POST", body: what });
