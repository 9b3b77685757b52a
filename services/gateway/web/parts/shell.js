// A shell beside a running job, as `roost exec` opens one. xterm.js is loaded when somebody asks for it.
import { Card } from "./bits.js";
import { resolved } from "./chart.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { once, style } from "../lib/vendor.js";
import { Keyboard, begin, follow, steer } from "../lib/visit.js";

const ROWS = 24;
const KEYS = "Ctrl F6 leaves the terminal";

const library = once(async () => {
  const [{ Terminal }, { FitAddon }] = await Promise.all([import("../vendor/xterm.js"), import("../vendor/xterm-fit.js"), style("xterm.css")]);
  return { Terminal, FitAddon };
});

/**
 * What xterm.js makes in place of its style elements, which this page's policy forbids (bin/vendor-web): its text is a
 * sheet of the page as long as it is in it.
 */
class Sheet extends HTMLElement {
  #rules = new CSSStyleSheet();

  set textContent(text) {
    this.#rules.replaceSync(text);
  }

  connectedCallback() {
    this.hidden = true;
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, this.#rules];
  }

  disconnectedCallback() {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== this.#rules);
  }
}
customElements.define("roost-sheet", Sheet);

/** @param {{row: Record<string, any>}} props a running job of who may run programs beside it */
export function Shell({ row }) {
  const [open, set] = useState(false);
  return html`<${Card} title="Shell" note="beside the job: in its directory, with its account and limits">
    ${open ? html`<${Screen} row=${row} close=${() => set(false)} />` : html`<button type="button" class="button" onClick=${() => set(true)}>Open a shell</button>`}
  </${Card}>`;
}

function Screen({ row, close }) {
  const box = useRef(null);
  const leave = useRef(null);
  const [told, tell] = useState({ text: "Connecting …", wrong: false });

  useEffect(() => {
    const abort = new AbortController();
    let end = () => undefined;
    const run = async () => {
      const { Terminal, FitAddon } = await library();
      if (abort.signal.aborted || !box.current) return;
      const terminal = new Terminal({ rows: ROWS, fontSize: 13, fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono"), screenReaderMode: true, theme: colours(), minimumContrastRatio: 4.5 });
      const fit = new FitAddon();
      terminal.loadAddon(fit);
      terminal.open(box.current);
      const size = () => ({ rows: terminal.rows, columns: terminal.cols });
      const room = () => {
        const wanted = fit.proposeDimensions();
        if (wanted?.cols > 1) terminal.resize(wanted.cols, ROWS);
      };
      room();
      const watch = new ResizeObserver(room);
      watch.observe(box.current);
      const repaint = () => (terminal.options.theme = colours());
      const media = matchMedia("(prefers-color-scheme: dark)");
      media.addEventListener("change", repaint);
      addEventListener("roost-theme", repaint);
      end = () => {
        media.removeEventListener("change", repaint);
        removeEventListener("roost-theme", repaint);
        watch.disconnect();
        terminal.dispose();
      };
      terminal.attachCustomKeyEventHandler((event) => {
        if (event.key !== "F6" || !event.ctrlKey) return true;
        leave.current?.focus();
        return false;
      });
      const visit = await begin(row, { kind: "run", command: [], tty: true, term: "xterm-256color", ...size() }, abort.signal);
      const wrong = (error) => abort.signal.aborted || tell({ text: error.message, wrong: true });
      const keyboard = new Keyboard(visit, wrong);
      terminal.onData((text) => keyboard.type(new TextEncoder().encode(text)));
      terminal.onBinary((text) => keyboard.type(Uint8Array.from(text, (one) => one.charCodeAt(0))));
      terminal.onResize(() => keyboard.over || void steer(visit, size()).catch(wrong));
      tell({ text: KEYS, wrong: false });
      terminal.focus();
      const how = await follow(visit, (_, data) => terminal.write(data), abort.signal);
      keyboard.over = true;
      terminal.options.disableStdin = true;
      tell({ text: how ? ended(how) : "The connection to the job has ended.", wrong: !how });
    };
    run().catch((error) => abort.signal.aborted || tell({ text: error.message ?? String(error), wrong: true }));
    return () => {
      abort.abort();
      end();
    };
  }, []);

  return html`<div class="stack">
    <div class="shell-box" ref=${box}></div>
    <div class="row"><button type="button" class="button small" ref=${leave} onClick=${close}>Close the shell</button>
      ${told.wrong ? html`<p class="notice bad" role="alert">${told.text}</p>` : html`<span class="soft" role="status">${told.text}</span>`}</div>
  </div>`;
}

const colours = () => ({ background: resolved("--paper"), foreground: resolved("--ink"), cursor: resolved("--ink"), selectionBackground: resolved("--accent-soft") });
const ended = (how) => how.reason || (how.exit_signal ? `It was ended by signal ${how.exit_signal}.` : `It ended with exit code ${how.exit_code ?? "–"}.`);
