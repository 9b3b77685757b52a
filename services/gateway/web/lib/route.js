// Where we are: "#/machines?state=Claimed". All of a page's state is there, so links and the back button work.
import { useEffect, useState } from "./html.js";

/** @typedef {{path: string[], query: Record<string, string>}} Route */

/** @returns {Route} */
export function current() {
  const [path, query] = location.hash.replace(/^#/, "").split("?", 2);
  return {
    path: path.split("/").filter(Boolean).map(decode),
    query: Object.fromEntries(new URLSearchParams(query ?? "")),
  };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** A link to a page. Empty values are left out. @param {string[]} path @param {Record<string, unknown>} [query] */
export function href(path, query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value !== "" && value !== undefined && value !== null && value !== false);
  const text = new URLSearchParams(kept.map(([key, value]) => [key, String(value)])).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** @param {string} to @param {boolean} [replace] no new entry in the history */
export function go(to, replace = false) {
  if (replace) {
    history.replaceState(null, "", to);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = to;
  }
}

/** Change some of the query of this page; the page of a table begins anew. */
export function change(values, replace = false) {
  const { path, query } = current();
  go(href(path, { ...query, after: "", ...values }), replace);
}

/** @returns {Route} */
export function useRoute() {
  const [route, set] = useState(current);
  useEffect(() => {
    const follow = () => set(current());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return route;
}
