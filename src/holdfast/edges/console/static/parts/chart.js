// A small chart of the last hour: an area or two lines over time, drawn as SVG.

import { html } from "../vendor/preact.js";
import { clock } from "./format.js";

const WIDE = 320;
const HIGH = 56;
const HOUR = 3600_000;
const LEAST = 600_000;

function path(points, top) {
  let text = "";
  let pen = false;
  for (const [x, y] of points) {
    if (y == null) {
      pen = false;
      continue;
    }
    const at = `${x.toFixed(1)} ${(HIGH - (y / top) * (HIGH - 4)).toFixed(1)}`;
    text += `${pen ? "L" : "M"}${at}`;
    pen = true;
  }
  return text;
}

/** A chart. `lines` are functions from a point to a figure or null; the first is filled. */
export function Chart({ title, points, lines, show, now, value, hint }) {
  const begin = Math.max(now - HOUR, Math.min(now - LEAST, points[0]?.at ?? now));
  const placed = lines.map((line) => points.map((one) => [((one.at - begin) / (now - begin)) * WIDE, line(one)]));
  const figures = placed.flat().map(([, y]) => y).filter((y) => y != null);
  const most = figures.length ? Math.max(...figures) : 0;
  const top = most || 1;
  const first = placed[0].filter(([, y]) => y != null);
  const area = first.length > 1 ? `${path(first, top)}L${first.at(-1)[0].toFixed(1)} ${HIGH}L${first[0][0].toFixed(1)} ${HIGH}Z` : "";
  const spoken = `${title}: now ${value}, at most ${show(most)} in the last hour`;
  return html`<figure class="chart">
    <figcaption><span>${title}</span><strong>${value}</strong></figcaption>
    <svg viewBox=${`0 0 ${WIDE} ${HIGH}`} preserveAspectRatio="none" role="img" aria-label=${spoken}>
      <path class="area" d=${area} />
      ${placed.map((line, number) => html`<path key=${number} class=${`line line-${number}`} d=${path(line, top)} />`)}
    </svg>
    <p class="chart-foot"><span>${clock(begin).slice(0, 5)}</span><span>${hint || `peak ${show(most)}`}</span><span>now</span></p>
  </figure>`;
}
