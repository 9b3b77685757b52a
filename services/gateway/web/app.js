// The frame around all pages: who is logged in, where to go, and the keys.
import { ApiError, ask, logIn, logOut, onLogOut, takeFromAddress, token } from "./lib/api.js";
import { html, render, useEffect, useRef, useState } from "./lib/html.js";
import { go, href, useRoute } from "./lib/route.js";
import { reconnect, useLiveState } from "./lib/live.js";
import { Card, Empty, Head } from "./parts/bits.js";
import { Dialogs, Keys } from "./parts/dialog.js";
import { Jump } from "./parts/jump.js";
import { Availability } from "./pages/availability.js";
import { Cycle, Negotiation } from "./pages/negotiation.js";
import { Daemons } from "./pages/daemons.js";
import { Doors } from "./pages/doors.js";
import { Events } from "./pages/events.js";
import { HowTo } from "./pages/howto.js";
import { Groups } from "./pages/groups.js";
import { Job } from "./pages/job.js";
import { Jobs } from "./pages/jobs.js";
import { Letters } from "./pages/letters.js";
import { Machine } from "./pages/machine.js";
import { Machines } from "./pages/machines.js";
import { Overview } from "./pages/overview.js";
import { Pools } from "./pages/pools.js";
import { Shares } from "./pages/shares.js";

/** In the order of the menu. key: after "g". also: pages that belong to it. picture: drawn in a square of 20. */
const PAGES = [
  { path: "", text: "Overview", key: "o", page: Overview, picture: "M3 3h6v8H3zM11 3h6v5h-6zM11 10h6v7h-6zM3 13h6v4H3z" },
  { path: "machines", text: "Machines", key: "m", page: Machines, also: ["machine"], picture: "M3 4h14v5H3zM3 11h14v5H3zM6 6.5h.01M6 13.5h.01" },
  { path: "jobs", text: "Jobs", key: "j", page: Jobs, also: ["job"], picture: "M7 5h10M7 10h10M7 15h10M3 5h.01M3 10h.01M3 15h.01" },
  { path: "shares", text: "Fair share", key: "s", page: Shares, picture: "M10 3v14M4 6h12M4 6l-2 5h4zM16 6l-2 5h4zM7 17h6" },
  { path: "groups", text: "Groups", key: "r", page: Groups, picture: "M8 3h4v4H8zM3 13h4v4H3zM13 13h4v4h-4zM10 7v3M5 13v-3h10v3" },
  { path: "negotiation", text: "Negotiation", key: "n", page: Negotiation, also: ["cycle"], picture: "M4 7h11l-3-3M16 13H5l3 3" },
  { path: "availability", text: "Availability", key: "a", page: Availability, picture: "M10 17s-6-3.5-6-9V5l6-2 6 2v3c0 5.500-6 9-6 9zM7.500 9.500l2 2 3-4" },
  { path: "daemons", text: "Daemons", key: "d", page: Daemons, picture: "M10 16.500S3 12.500 3 7.800A3.800 3.800 0 0 1 10 5.900a3.800 3.800 0 0 1 7 1.900c0 4.700-7 8.700-7 8.700zM3.500 10h3l1.500-2.500 2.500 4.500 1.500-2h4.500" },
  { path: "events", text: "Events", key: "e", page: Events, picture: "M2 11h4l2-6 4 10 2-4h4" },
  { path: "letters", text: "Dead letters", key: "l", page: Letters, picture: "M3 5h14v10H3zM3 6l7 5 7-5" },
  { path: "pools", text: "Pools", key: "w", page: Pools, picture: "M6 8a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5zM14 8a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5zM10 17a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5zM8.500 5.500h3M7 7.700l2 4.500M13 7.700l-2 4.500" },
  { path: "how-to", text: "How do I …", key: "h", page: HowTo, picture: "M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM8 8a2 2 0 1 1 2.500 2c-.4.2-.5.5-.5 1.200M10 14h.01" },
  { path: "api", text: "HTTP API", key: "p", page: Doors, picture: "M7 6l-4 4 4 4M13 6l4 4-4 4M11 4l-2 12" },
];
const DETAILS = { machine: Machine, job: Job, cycle: Cycle };
/** The page names it. */
const ICON = document.querySelector("link[rel=icon]").getAttribute("href");
const THEMES = { auto: "as the system", light: "light", dark: "dark" };
const CHORD_MS = 1500;

function App() {
  const [who, setWho] = useState(/** @type {any} */ (token() ? undefined : null));
  const [why, setWhy] = useState("");
  const check = async () => {
    try {
      const found = await ask("/v1/whoami");
      setWhy("");
      setWho(found);
      reconnect();
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) {
        setWhy(error.message);
        setWho(null);
      } else {
        setWhy(error instanceof ApiError ? error.message : "The gateway does not answer.");
        setWho((old) => old ?? false);
        setTimeout(check, 2000);
      }
    }
  };
  useEffect(() => {
    if (token()) void check();
    // A link with a token, opened in this very tab.
    const linked = () => {
      if (location.hash.startsWith("#token=")) {
        takeFromAddress();
        setWho(undefined);
        void check();
        dispatchEvent(new HashChangeEvent("hashchange"));
      }
    };
    addEventListener("hashchange", linked);
    const left = onLogOut(() => {
      setWho(null);
      reconnect();
    });
    return () => {
      removeEventListener("hashchange", linked);
      left();
    };
  }, []);
  if (who === null) return html`<${Login} why=${why} enter=${(text) => (logIn(text), setWho(undefined), check())} />`;
  if (who === false) return html`<p class="boot" role="alert">${why} Trying again …</p>`;
  return html`<${Shell} who=${who} />`;
}

function Login({ why, enter }) {
  useEffect(() => {
    document.title = "Log in · Roost";
  }, []);
  const send = (event) => {
    event.preventDefault();
    const text = String(new FormData(event.currentTarget).get("token") ?? "").trim();
    if (text) enter(text);
  };
  return html`<main class="login"><form class="card" onSubmit=${send}>
    <h1 class="brand"><img src=${ICON} alt="" /> Roost</h1>
    <p>Paste a token of this pool. The command <code>roost dashboard</code> opens this page with yours.</p>
    ${why && html`<p class="notice bad" role="alert">${why}</p>`}
    <label class="field"><span>Token</span><input class="input" name="token" type="password" autocomplete="off" spellcheck=${false} required autofocus /></label>
    <button class="button primary" type="submit">Log in</button>
    <p class="soft">The token stays in this tab, and is forgotten when it is closed.</p>
  </form></main>`;
}

function Shell({ who }) {
  const route = useRoute();
  const [open, setOpen] = useState(false);
  const [keys, showKeys] = useState(false);
  const [jump, showJump] = useState(false);
  const name = route.path[0] ?? "";
  const item = PAGES.find((page) => page.path === name || page.also?.includes(name));
  const Page = DETAILS[name] ?? PAGES.find((page) => page.path === name)?.page;
  const level = who?.level ?? "READ";
  const place = route.path.join("/");
  useKeys(() => showKeys(true), () => showJump(true));
  useEffect(() => setOpen(false), [place]);
  useFocus(place);
  return html`
    <a class="skip" href="#main" onClick=${(event) => (event.preventDefault(), document.querySelector("h1")?.focus())}>Skip to the content</a>
    <header class="top">
      <a class="brand" href="#/"><img src=${ICON} alt="" /> Roost</a>
      <${Live} />
      <button type="button" class="button" aria-expanded=${open} aria-controls="menu" onClick=${() => setOpen(!open)}>Menu</button>
    </header>
    <div class="shell">
      <aside class="side ${open ? "open" : ""}" id="menu" aria-label="Menu">
        <a class="brand" href="#/"><img src=${ICON} alt="" /> Roost</a>
        <nav aria-label="Pages"><ul>${PAGES.map(
          (page) => html`<li key=${page.path}><a href=${href(page.path ? [page.path] : [])} aria-current=${page === item ? "page" : undefined}>
            <svg viewBox="0 0 20 20" fill="none" stroke="currentColor" stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true"><path d=${page.picture} /></svg>${page.text}</a></li>`,
        )}</ul></nav>
        <div class="foot">
          <${Live} />
          ${who && html`<span>${who.user}<br />${who.level}</span>`}
          <div class="row"><${Theme} /><button type="button" class="button small" onClick=${() => showJump(true)}>Jump …</button><button type="button" class="button small" onClick=${() => showKeys(true)}>Keys</button><button type="button" class="button small" onClick=${() => logOut()}>Log out</button></div>
        </div>
      </aside>
      <main id="main">${Page ? html`<${Page} key=${place} path=${route.path} query=${route.query} level=${level} />` : html`<${Head} title="No such page" /><${Card}><${Empty} title="There is no page ${place}"><a href="#/">To the overview</a></${Empty}></${Card}>`}</main>
    </div>
    ${jump && html`<${Jump} pages=${PAGES} close=${() => showJump(false)} />`}
    ${keys && html`<${Keys} pages=${PAGES} close=${() => showKeys(false)} />`}
    <${Dialogs} />`;
}

function Live() {
  const state = useLiveState();
  const text = { off: document.hidden ? "Paused" : "Not a live page", connecting: "Connecting", live: "Live", retrying: "Disconnected, retrying" }[state];
  return html`<span class="live ${state === "live" ? "on" : state === "retrying" ? "off" : ""}" role="status"><span class="dot" aria-hidden="true"></span>${text}</span>`;
}

function Theme() {
  const [theme, set] = useState(() => stored());
  const next = Object.keys(THEMES)[(Object.keys(THEMES).indexOf(theme) + 1) % 3];
  useEffect(() => {
    paint(theme);
    dispatchEvent(new Event("roost-theme"));
  }, [theme]);
  const turn = () => {
    try {
      localStorage.setItem("roost.theme", next);
    } catch {
      // It holds as long as the page.
    }
    set(next);
  };
  return html`<button type="button" class="button small" onClick=${turn}><span class="unseen">Colours: ${THEMES[theme]}; change to ${THEMES[next]}</span><span aria-hidden="true">${{ auto: "◐", light: "☀", dark: "☾" }[theme]}</span></button>`;
}

function stored() {
  try {
    const found = localStorage.getItem("roost.theme") ?? "auto";
    return found in THEMES ? found : "auto";
  } catch {
    return "auto";
  }
}

function paint(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

/** "/" to the search box, "g" and a letter to a page, Ctrl and "k" to anything, "?" for help. */
function useKeys(help, jump) {
  const chord = useRef(0);
  useEffect(() => {
    const press = (event) => {
      if (event.key === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && !document.querySelector("dialog")) {
        event.preventDefault();
        jump();
        return;
      }
      const typing = event.target instanceof HTMLElement && event.target.closest("input, textarea, select, [contenteditable], dialog");
      if (event.ctrlKey || event.metaKey || event.altKey || typing) return;
      if (Date.now() - chord.current < CHORD_MS) {
        const page = PAGES.find((one) => one.key === event.key);
        chord.current = 0;
        if (page) {
          event.preventDefault();
          go(href(page.path ? [page.path] : []));
        }
        return;
      }
      if (event.key === "g") chord.current = Date.now();
      else if (event.key === "?") help();
      else if (event.key === "/") {
        const box = document.querySelector("[data-search]");
        if (box instanceof HTMLElement) {
          event.preventDefault();
          box.focus();
        }
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

/** A new page begins at its heading, for eyes, keys and screen readers. */
function useFocus(place) {
  const first = useRef(true);
  useEffect(() => {
    if (first.current) {
      first.current = false;
      return;
    }
    scrollTo(0, 0);
    document.querySelector("main h1")?.focus({ preventScroll: true });
  }, [place]);
}

paint(stored());
takeFromAddress();
const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
