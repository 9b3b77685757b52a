// A DAG on the page of the job that manages it: how many nodes are in which state, and a picture of a small one. Both come
// from attributes of that job (engine/dag/picture.py).
import { Card, Legend } from "./bits.js";
import { count } from "../lib/format.js";
import { html, useMemo } from "../lib/html.js";
import { href } from "../lib/route.js";

/** Letter of a state -> its word, its colour, and whether the node is still to be done. */
const STATES = {
  N: ["waits for its parents", "s-Unknown", true],
  R: ["ready", "s-Owner", true],
  P: ["PRE script", "s-Matched", true],
  I: ["idle", "s-Idle-job", true],
  X: ["running", "s-Running", true],
  H: ["held", "s-Held", true],
  O: ["POST script", "s-Matched", true],
  D: ["done", "s-Completed", false],
  E: ["failed", "s-Failed", false],
  F: ["never runs: a parent failed", "s-Removed", false],
};
/** The same states, as the DAG counts them. */
const COUNTS = [
  ["done", "DAG_NodesDone", "s-Completed"],
  ["failed", "DAG_NodesFailed", "s-Failed"],
  ["in the queue", "DAG_NodesQueued", "s-Running"],
  ["PRE script", "DAG_NodesPrerun", "s-Matched"],
  ["POST script", "DAG_NodesPostrun", "s-Matched"],
  ["ready", "DAG_NodesReady", "s-Owner"],
  ["wait for parents", "DAG_NodesUnready", "s-Unknown"],
  ["never run: a parent failed", "DAG_NodesFutile", "s-Removed"],
];
const WIDE = 168;
const HIGH = 34;
const BOX = [136, 24];
const LETTERS = 16;

/** @param {{ad: Record<string, string>, schedd?: string}} props */
export function Dag({ ad, schedd }) {
  const parts = COUNTS.filter(([, name]) => Number(ad[name]) > 0).map(([label, name, tone]) => ({ label, value: Number(ad[name]), tone }));
  const drawn = useMemo(() => laid(nodes(ad)), [ad.DAG_NodeNames, ad.DAG_NodeParents, ad.DAG_NodeStates, ad.DAG_NodeClusters]);
  const left = drawn ? drawn.left.size : 0;
  return html`<${Card} title="DAG" note=${`${count(Number(ad.DAG_NodesTotal))} nodes`} side=${left > 1 && `longest way that is left: ${left} nodes`}>
    <${Legend} parts=${parts} />
    ${drawn && html`<${Picture} drawn=${drawn} schedd=${schedd} />`}
  </${Card}>`;
}

/** A text of the ad. */
function text(expression) {
  try {
    return String(JSON.parse(expression ?? '""'));
  } catch {
    return "";
  }
}

/** @returns {{name: string, parents: number[], state: string, cluster: string}[]} */
function nodes(ad) {
  const names = text(ad.DAG_NodeNames).split(" ").filter(Boolean);
  const parents = text(ad.DAG_NodeParents).split(" ");
  const clusters = text(ad.DAG_NodeClusters).split(" ");
  const states = text(ad.DAG_NodeStates);
  return names.map((name, place) => ({
    name: name === "+" ? "" : name,
    parents: (parents[place] ?? "-") === "-" ? [] : parents[place].split(",").map(Number).filter((one) => one < names.length),
    state: states[place] ?? "N",
    cluster: clusters[place] ?? "-",
  }));
}

/** Where each node stands: a column behind those of its parents, near their middle. */
function laid(found) {
  if (!found.length) return null;
  const children = found.map(() => []);
  found.forEach((node, place) => node.parents.forEach((parent) => children[parent].push(place)));
  const open = found.map((node) => node.parents.length);
  const order = found.map((_, place) => place).filter((place) => !open[place]);
  const column = found.map(() => 0);
  for (const place of order) for (const child of children[place]) {
    column[child] = Math.max(column[child], column[place] + 1);
    if (--open[child] === 0) order.push(child);
  }
  const row = found.map(() => 0);
  const columns = [];
  for (const place of order) (columns[column[place]] ??= []).push(place);
  for (const some of columns) {
    const middle = (place) => found[place].parents.reduce((all, parent) => all + row[parent], 0) / (found[place].parents.length || 1);
    some.sort((a, b) => middle(a) - middle(b) || a - b).forEach((place, at) => (row[place] = at));
  }
  const high = Math.max(...columns.map((some) => some.length));
  for (const some of columns) for (const place of some) row[place] += (high - some.length) / 2;
  // The longest way through what is still to be done.
  const behind = found.map(() => 0);
  for (const place of [...order].reverse()) if (STATES[found[place].state]?.[2]) behind[place] = 1 + Math.max(0, ...children[place].map((child) => behind[child]));
  const left = new Set();
  let at = order.reduce((best, place) => (best === -1 || behind[place] > behind[best] ? place : best), -1);
  while (at >= 0 && behind[at] > 0) {
    left.add(at);
    at = children[at].reduce((best, child) => (behind[child] > 0 && (best === -1 || behind[child] > behind[best]) ? child : best), -1);
  }
  return { found, column, row, left, wide: columns.length * WIDE, high: high * HIGH };
}

function Picture({ drawn, schedd }) {
  const { found, column, row, left, wide, high } = drawn;
  const x = (place) => column[place] * WIDE + 4;
  const y = (place) => row[place] * HIGH + HIGH / 2;
  return html`<div class="scroll dag" tabindex="0" role="region" aria-label="Picture of the DAG">
    <svg width=${wide} height=${high} role="group" aria-label="Nodes of the DAG, each behind its parents">
      ${found.flatMap((node, place) => node.parents.map((parent) => html`<path key=${`${parent}-${place}`} class=${left.has(parent) && left.has(place) ? "edge left" : "edge"} d=${`M${x(parent) + (found[parent].name ? BOX[0] : 0)},${y(parent)} C${x(place) - 18},${y(parent)} ${x(place) - 18},${y(place)} ${x(place)},${y(place)}`} />`))}
      ${found.map((node, place) => html`<${Node} key=${place} node=${node} x=${x(place)} y=${y(place)} schedd=${schedd} />`)}
    </svg></div>`;
}

function Node({ node, x, y, schedd }) {
  if (!node.name) return html`<circle class="join" cx=${x} cy=${y} r="3" />`;
  const [word, tone] = STATES[node.state] ?? STATES.N;
  const name = node.name.length > LETTERS ? `${node.name.slice(0, LETTERS - 1)}…` : node.name;
  const body = html`<title>${`${node.name}: ${word}`}</title>
    <rect x=${x} y=${y - BOX[1] / 2} width=${BOX[0]} height=${BOX[1]} rx="6" />
    <circle class="state ${tone}" cx=${x + 13} cy=${y} r="5" />
    <text x=${x + 24} y=${y + 4}>${name}</text>`;
  return node.cluster === "-"
    ? html`<g role="img" aria-label=${`${node.name}: ${word}`}>${body}</g>`
    : html`<a href=${href(["job", `${node.cluster}.0`], { schedd })} aria-label=${`${node.name}: ${word}`}>${body}</a>`;
}
