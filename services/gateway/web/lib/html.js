// One place for what pages are made of.
import { h, render, Fragment } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.js";
export { Fragment, h, render };
export const html = htm.bind(h);
