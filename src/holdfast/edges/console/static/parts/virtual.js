// A list of any length that draws only the rows in view, and asks for more near its end.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";

const SPARE = 8;

/** `row` draws one; all rows have the same height. `more` is called near the end, and may return a promise. */
export function VirtualList({ rows, height, row, more, label }) {
  const box = useRef();
  const asking = useRef(false);
  const [view, setView] = useState({ top: 0, high: 600 });

  const measure = () => {
    const rect = box.current.getBoundingClientRect();
    setView({ top: Math.max(0, -rect.top), high: innerHeight });
  };
  useLayoutEffect(measure, [rows.length]);
  useEffect(() => {
    addEventListener("scroll", measure, { passive: true });
    addEventListener("resize", measure);
    return () => {
      removeEventListener("scroll", measure);
      removeEventListener("resize", measure);
    };
  }, []);

  const first = Math.max(0, Math.floor(view.top / height) - SPARE);
  const last = Math.min(rows.length, Math.ceil((view.top + view.high) / height) + SPARE);
  useEffect(() => {
    if (!more || asking.current || last < rows.length - 20) return;
    asking.current = true;
    Promise.resolve(more()).finally(() => {
      asking.current = false;
    });
  }, [last, rows.length, more]);

  return html`<div ref=${box} class="virtual" role="list" aria-label=${label} style=${{ height: `${rows.length * height}px` }}>
    <div style=${{ transform: `translateY(${first * height}px)` }}>
      ${rows.slice(first, last).map((one, number) => row(one, first + number))}
    </div>
  </div>`;
}
