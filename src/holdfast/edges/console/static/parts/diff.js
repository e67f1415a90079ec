// Differences between two JSON values, line by line of their pretty text.

import { html } from "../vendor/preact.js";

const MOST = 2000;
const LONG = 40;
const AROUND = 4;

/** Lines with " ", "-" or "+": the longest common lines stay, the rest goes or comes. */
export function lines(before, after) {
  const a = before ? before.split("\n") : [];
  const b = after ? after.split("\n") : [];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a.at(-1 - tail) === b.at(-1 - tail)) tail += 1;
  const x = a.slice(head, a.length - tail);
  const y = b.slice(head, b.length - tail);
  const middle = x.length * y.length > MOST * MOST ? [...x.map((one) => ["-", one]), ...y.map((one) => ["+", one])] : common(x, y);
  return [...a.slice(0, head).map((one) => [" ", one]), ...middle, ...a.slice(a.length - tail).map((one) => [" ", one])];
}

function common(x, y) {
  const table = Array.from({ length: x.length + 1 }, () => new Uint32Array(y.length + 1));
  for (let i = x.length - 1; i >= 0; i -= 1) {
    for (let j = y.length - 1; j >= 0; j -= 1) {
      table[i][j] = x[i] === y[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  const merged = [];
  let i = 0;
  let j = 0;
  while (i < x.length || j < y.length) {
    if (i < x.length && j < y.length && x[i] === y[j]) {
      merged.push([" ", x[i]]);
      i += 1;
      j += 1;
    } else if (j < y.length && (i === x.length || table[i][j + 1] > table[i + 1][j])) {
      merged.push(["+", y[j]]);
      j += 1;
    } else {
      merged.push(["-", x[i]]);
      i += 1;
    }
  }
  return merged;
}

const SPOKEN = { "-": "removed: ", "+": "added: " };
const CLASS = { "-": "gone", "+": "came", "…": "muted" };

/** Lines with long runs of the same ones replaced by their number. */
function folded(all) {
  const near = (at) => all.slice(Math.max(0, at - AROUND), at + AROUND + 1).some(([sign]) => sign !== " ");
  const shown = [];
  let hidden = 0;
  all.forEach((line, at) => {
    if (near(at)) {
      if (hidden) shown.push(["…", `${hidden} same lines`]);
      hidden = 0;
      shown.push(line);
    } else hidden += 1;
  });
  if (hidden) shown.push(["…", `${hidden} same lines`]);
  return shown;
}

export function Diff({ before, after, label }) {
  const all = lines(before, after);
  if (all.every(([sign]) => sign === " ")) return html`<p class="muted">The values are the same.</p>`;
  const shown = all.length > LONG ? folded(all) : all;
  return html`<pre class="value diff" tabindex="0" role="region" aria-label=${label}>${shown.map(
    ([sign, text], number) => html`<span key=${number} class=${CLASS[sign]}><span class="sign" aria-hidden="true">${sign}</span><span class="spoken">${SPOKEN[sign]}</span>${text}${"\n"}</span>`,
  )}</pre>`;
}
