// The search box of a page: "/" goes to it, and what is typed takes effect when the typing stops.
import { html, useEffect, useRef, useState } from "../lib/html.js";

const QUIET_MS = 300;

/** @param {{value: string, label: string, hint?: string, onSearch: (text: string) => void}} props */
export function Search({ value, label, hint, onSearch }) {
  const [text, set] = useState(value);
  const timer = useRef(0);
  useEffect(() => set(value), [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const type = (event) => {
    const typed = event.currentTarget.value;
    set(typed);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onSearch(typed.trim()), QUIET_MS);
  };
  const enter = (event) => {
    event.preventDefault();
    clearTimeout(timer.current);
    onSearch(text.trim());
  };
  return html`<form role="search" onSubmit=${enter}><label class="field"><span>${label}</span>
    <input class="input search" type="search" data-search maxlength="200" autocomplete="off" spellcheck=${false} placeholder=${hint} value=${text} onInput=${type} />
  </label></form>`;
}
