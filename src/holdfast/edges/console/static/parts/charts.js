// Charts of what a process has kept of its metrics: an hour, a day or a week.
//
// A line begins and ends with what was measured: nothing is drawn or filled where nothing is known.

import { html, useState } from "../vendor/preact.js";
import { clock, number, seconds } from "./format.js";

const WIDE = 320;
const HIGH = 92;
const perSecond = (amount) => (amount >= 10 ? number(Math.round(amount)) : number(Number(amount.toFixed(amount < 0.1 ? 2 : 1))));

/** The charts: each line is a function from a point to a figure, or null where there is none. */
const CHARTS = [
  { title: "Requests / s", show: perSecond, lines: [["", (one) => one.requests / one.seconds]] },
  // Percentiles are the bounds of a histogram's buckets.
  { title: "Latency", show: seconds, bounds: true, lines: [["p50", (one) => one.p50], ["p99", (one) => one.p99]] },
  { title: "Errors / s", show: perSecond, lines: [["", (one) => one.errors / one.seconds]] },
  { title: "Writes per commit", show: perSecond, lines: [["", (one) => (one.commits ? one.commands / one.commits : null)]] },
  { title: "Waiting requests", show: number, whole: true, lines: [["", (one) => one.waiting]] },
  { title: "Expiry lag", show: seconds, lines: [["", (one) => one.lag]] },
];
const FIGURES = ["seconds", "requests", "errors", "p50", "p99", "commits", "commands", "waiting", "lag"];

/** The points of an answer, which has a list for each figure. */
const points = (recent) =>
  recent.at.map((at, position) => {
    const point = { at: recent.begin + at * 1000 };
    for (const name of FIGURES) point[name] = recent[name][position] === "over" ? Infinity : recent[name][position];
    return point;
  });

/** A round number that is no less than another one. */
function rounded(most, whole) {
  if (!(most > 0)) return 1;
  const size = 10 ** Math.floor(Math.log10(most));
  const top = [1, 2, 4, 5, 10].map((step) => step * size).find((step) => step >= most * 0.9999);
  return whole ? Math.max(2, Math.ceil(top / 2) * 2) : top;
}

/** The stretches of a line without a gap, as points of the plot. A point covers the time before it. */
function stretches(shown, line, { x, y, step }) {
  const parts = [];
  let before = null;
  for (const one of shown) {
    const figure = line(one);
    const start = one.at - Math.min(one.seconds, step) * 1000;
    if (figure == null) before = null;
    else {
      if (!before || start - before.at > step * 500) parts.push([[x(start), y(figure)]]);
      parts.at(-1).push([x(one.at), y(figure)]);
      before = one;
    }
  }
  return parts;
}

const drawn = (part) => part.map(([x, y], position) => `${position ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
const filled = (part) => `${drawn(part)}L${part.at(-1)[0].toFixed(1)} ${HIGH}L${part[0][0].toFixed(1)} ${HIGH}Z`;

const day = new Intl.DateTimeFormat("en-GB", { weekday: "short" });
const labelled = (at, range) => `${range === "week" ? `${day.format(new Date(at))} ` : ""}${clock(at).slice(0, 5)}`;

function Chart({ chart, shown, recent, begin, now, at, setAt }) {
  const { title, show, lines, bounds, whole } = chart;
  const figures = shown.flatMap((one) => lines.map(([, line]) => line(one))).filter((figure) => figure != null && figure !== Infinity);
  const over = shown.some((one) => lines.some(([, line]) => line(one) === Infinity));
  const most = Math.max(0, ...figures, over ? recent.bound : 0);
  const top = rounded(most, whole);
  const x = (time) => Math.max(0, ((time - begin) / (now - begin)) * WIDE);
  const y = (figure) => HIGH - (Math.min(figure, top) / top) * HIGH;
  const drawing = lines.map(([, line]) => stretches(shown, line, { x, y, step: recent.step }));
  const told = (figure) => (figure == null ? "–" : figure === Infinity ? `> ${show(recent.bound)}` : bounds ? `≤ ${show(figure)}` : show(figure));
  const here = at == null ? shown.at(-1) : shown.find((one) => at <= one.at && at > one.at - one.seconds * 1000);
  const value = (line) => (here ? told(line(here)) : "–");
  const words = lines.map(([name, line]) => `${name} ${value(line)}`.trim()).join(", ");
  const known = over || figures.length > 0;
  const peak = known ? `peak ${told(over ? Infinity : most)}` : "nothing measured";
  const spoken = `${title}: ${words} now, ${peak} since ${labelled(begin, recent.range)}`;
  const moved = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    setAt(begin + Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) * (now - begin));
  };
  return html`<figure class="chart">
    <figcaption>
      <span>${title}</span>
      <span>${lines.map(([name, line], position) => html`<span key=${name} class="named">${name && html`<i class=${`line-${position}`}></i>${name} `}<strong>${value(line)}</strong></span>`)}</span>
    </figcaption>
    <div class="plot" role="img" aria-label=${spoken} onPointerMove=${moved} onPointerDown=${moved} onPointerLeave=${() => setAt(null)}>
      <svg viewBox=${`0 0 ${WIDE} ${HIGH}`} preserveAspectRatio="none" aria-hidden="true">
        ${[0, 0.5, 1].map((part) => html`<line key=${part} class="rule" x1="0" x2=${WIDE} y1=${HIGH * part} y2=${HIGH * part} />`)}
        ${lines.length === 1 && html`<path class="area" d=${drawing[0].map(filled).join("")} />`}
        ${drawing.map((parts, position) => html`<path key=${position} class=${`line line-${position}`} d=${parts.map(drawn).join("")} />`)}
        ${at != null && html`<line class="cursor" x1=${x(at)} x2=${x(at)} y1="0" y2=${HIGH} />`}
      </svg>
      ${known && [0, 0.5].map((part) => html`<span key=${part} class="tick" style=${{ top: `${part * 100}%` }} aria-hidden="true">${show(top * (1 - part))}</span>`)}
    </div>
    <p class="chart-foot">
      <span>${labelled(begin, recent.range)}</span>
      ${at == null ? html`<span class="peak">${peak}</span>` : html`<span class="then">${labelled(at, recent.range)}${recent.range === "hour" && clock(at).slice(5)}</span>`}
      <span>now</span>
    </p>
  </figure>`;
}

/** The charts of an answer. The time under the pointer is marked in all of them. */
export function Charts({ recent, now }) {
  const [at, setAt] = useState(null);
  const shown = points(recent);
  const span = recent.span * 1000;
  const first = shown.length ? shown[0].at - shown[0].seconds * 1000 : now;
  const begin = Math.max(now - span, Math.min(now - span / 6, first));
  return html`<div class="charts">
    ${CHARTS.map((chart) => html`<${Chart} key=${chart.title} chart=${chart} shown=${shown} recent=${recent} begin=${begin} now=${now} at=${at} setAt=${setAt} />`)}
  </div>`;
}

const WORDS = { hour: "Hour", day: "Day", week: "Week" };

/** The choice of a range, and since when this process has kept figures. */
export function Ranges({ recent, choose }) {
  return html`<span class="ranges">
    <span class="muted">this process, since ${labelled(recent.since, "week")}</span>
    <span role="group" aria-label="Range">
      ${recent.ranges.map((name) => html`<button key=${name} type="button" aria-pressed=${name === recent.range} onClick=${() => choose(name)}>${WORDS[name]}</button>`)}
    </span>
  </span>`;
}
