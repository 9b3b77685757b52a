// Questions before anything is changed, and what came of it.
import { html, useEffect, useRef, useState } from "../lib/html.js";

/** @typedef {{name: string, label: string, type?: string, value?: any, options?: [string, string][], min?: number, step?: string, required?: boolean}} Field */
/** @typedef {{title: string, text?: any, action: string, danger?: boolean, fields?: Field[], then: (values: Record<string, string>) => Promise<string>}} Question */

/** @type {(question: Question) => void} */
let put = () => {};
/** @type {(text: string, bad?: boolean) => void} */
let show = () => {};

/** Ask, and carry out what was confirmed; `then` answers what to tell. @param {Question} question */
export const confirm = (question) => put(question);
/** @param {string} text @param {boolean} [bad] */
export const toast = (text, bad = false) => show(text, bad);

const SHOWN_MS = 6000;

/** Where dialogs and short messages appear: once in the page. */
export function Dialogs() {
  const [question, ask] = useState(null);
  const [told, tell] = useState(null);
  const timer = useRef(0);
  put = ask;
  show = (text, bad = false) => {
    clearTimeout(timer.current);
    tell({ text, bad });
    timer.current = setTimeout(() => tell(null), bad ? SHOWN_MS * 2 : SHOWN_MS);
  };
  return html`${question && html`<${Asked} question=${question} close=${() => ask(null)} />`}
    <div role="status" aria-live="polite">${told && html`<p class="toast ${told.bad ? "bad" : ""}">${told.text}</p>`}</div>`;
}

function Asked({ question, close }) {
  const box = useRef(null);
  const [busy, setBusy] = useState(false);
  const [wrong, setWrong] = useState("");
  useEffect(() => {
    const before = document.activeElement;
    box.current.showModal();
    return () => before instanceof HTMLElement && before.focus();
  }, []);
  const send = async (event) => {
    event.preventDefault();
    setBusy(true);
    setWrong("");
    try {
      const said = await question.then(Object.fromEntries([...new FormData(event.currentTarget)].map(([key, value]) => [key, String(value)])));
      close();
      toast(said);
    } catch (error) {
      setWrong(error.message);
      setBusy(false);
    }
  };
  return html`<dialog ref=${box} aria-labelledby="question" onClose=${close} onClick=${(event) => event.target === box.current && close()}>
    <form onSubmit=${send}>
      <h2 id="question">${question.title}</h2>
      ${question.text && html`<p>${question.text}</p>`}
      ${(question.fields ?? []).map((field) => html`<label class="field"><span>${field.label}</span>
        ${field.options
          ? html`<select class="input" name=${field.name}>${field.options.map(([key, text]) => html`<option value=${key}>${text}</option>`)}</select>`
          : html`<input class="input" name=${field.name} type=${field.type ?? "text"} value=${field.value ?? ""} min=${field.min} step=${field.step} required=${field.required} autocomplete="off" />`}</label>`)}
      ${wrong && html`<p class="notice bad" role="alert">${wrong}</p>`}
      <div class="row">
        <button type="button" class="button" onClick=${close}>Cancel</button>
        <button type="submit" class="button ${question.danger ? "danger" : "primary"}" disabled=${busy}>${busy ? "Working …" : question.action}</button>
      </div>
    </form>
  </dialog>`;
}

/** Keys and what they do. */
export function Keys({ pages, close }) {
  const box = useRef(null);
  useEffect(() => box.current.showModal(), []);
  return html`<dialog ref=${box} aria-labelledby="keys" onClose=${close} onClick=${(event) => event.target === box.current && close()}>
    <div class="inner">
      <h2 id="keys">Keys</h2>
      <dl class="facts">
        <dt><kbd>/</kbd></dt><dd>to the search box</dd>
        <dt><kbd>Ctrl</kbd> <kbd>k</kbd></dt><dd>jump to a page, job, machine or submitter</dd>
        <dt><kbd>?</kbd></dt><dd>this list</dd>
        <dt><kbd>Esc</kbd></dt><dd>close a dialog</dd>
        ${pages.map((page) => html`<dt><kbd>g</kbd> <kbd>${page.key}</kbd></dt><dd>${page.text}</dd>`)}
      </dl>
      <div class="row"><button type="button" class="button" onClick=${close}>Close</button></div>
    </div>
  </dialog>`;
}
