// The gateway's API with the token that was given. The token lives in this tab only (sessionStorage).

const KEY = "roost.token";
/** @type {Set<() => void>} */
const leaving = new Set();

export class ApiError extends Error {
  /** @param {number} status @param {string} code @param {string} message */
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

let kept = "";
export const token = () => kept || (kept = read());

function read() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

/** @param {string} text */
export function logIn(text) {
  kept = text.trim();
  try {
    sessionStorage.setItem(KEY, kept);
  } catch {
    // Without storage the token lives as long as the page.
  }
}

export function logOut() {
  kept = "";
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // There was none.
  }
  for (const tell of leaving) tell();
}

/** Told when the token is no longer good. @param {() => void} tell */
export function onLogOut(tell) {
  leaving.add(tell);
  return () => leaving.delete(tell);
}

/** A token in the fragment of the address (`roost dashboard`): taken, and gone from the address at once. */
export function takeFromAddress() {
  const found = /^#token=([^&]+)(?:&to=(.*))?$/.exec(location.hash);
  if (!found) return;
  logIn(decodeURIComponent(found[1]));
  history.replaceState(null, "", `#/${found[2] ? decodeURIComponent(found[2]) : ""}`);
}

/**
 * @param {string} path
 * @param {{method?: string, body?: unknown, signal?: AbortSignal}} [options]
 * @returns {Promise<any>} what the gateway answered. Throws ApiError, or what fetch throws.
 */
export async function ask(path, options = {}) {
  const answer = await raw(path, {
    method: options.method ?? "GET",
    signal: options.signal,
    headers: options.body === undefined ? {} : { "Content-Type": "application/json" },
    body: options.body === undefined ? undefined : JSON.stringify(options.body),
  });
  return answer.json();
}

/** @param {string} path @param {RequestInit} options @returns {Promise<Response>} */
export async function raw(path, options) {
  const answer = await fetch(path, {
    ...options,
    cache: "no-store",
    headers: { ...options.headers, Authorization: `Bearer ${token()}` },
  });
  if (answer.ok) return answer;
  const text = await answer.text();
  let told = { code: "error", message: text.slice(0, 500) || `the gateway answered ${answer.status}` };
  try {
    told = JSON.parse(text).error ?? told;
  } catch {
    // Not the gateway's own answer: a proxy's, say.
  }
  if (answer.status === 401) logOut();
  throw new ApiError(answer.status, told.code, told.message);
}

/** "/v1/x?a=b". @param {string} path @param {Record<string, unknown>} query */
export function url(path, query) {
  const kept = Object.entries(query).filter(([, value]) => value !== "" && value !== undefined && value !== null && value !== false);
  const text = new URLSearchParams(kept.map(([key, value]) => [key, String(value)])).toString();
  return text ? `${path}?${text}` : path;
}
