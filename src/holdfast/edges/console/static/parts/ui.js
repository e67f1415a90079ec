// Small parts that several pages use.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { ago, bytes, namespaceHref, number, span, time } from "./format.js";

/** Say something to a screen reader, and show it for a moment unless it is quiet. */
export function announce(text, { quiet = false } = {}) {
  const region = document.getElementById("announcements");
  if (!region) return;
  region.className = quiet ? "spoken" : "toast";
  region.textContent = "";
  requestAnimationFrame(() => {
    region.textContent = text;
  });
  clearTimeout(announce.timer);
  announce.timer = setTimeout(() => {
    region.textContent = "";
  }, 5000);
}

export const Tag = ({ tone, children }) => html`<span class=${`tag ${tone || ""}`}>${children}</span>`;

export const Empty = ({ title, children }) =>
  html`<div class="empty"><p class="empty-title">${title}</p><p>${children}</p></div>`;

export const Problem = ({ error, retry }) => html`
  <div class="problem" role="alert">
    <p><strong>${error.message}</strong></p>
    ${error.code && html`<p class="muted"><code>${error.code}</code></p>`}
    ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}
  </div>
`;

/** A heading with something at its right. */
export const Section = ({ title, aside, children, id }) => html`
  <section class="card" aria-labelledby=${id}>
    <header class="card-head"><h2 id=${id}>${title}</h2>${aside}</header>
    ${children}
  </section>
`;

/** The tone of a share: amber from 80 % on, and red at 100 %. */
const toneOf = (share) => (share >= 1 ? "bad" : share >= 0.8 ? "warn" : "");

/** A bar that shows a share, with its text beside it. */
export function Meter({ share, label }) {
  return html`<span class=${`meter ${toneOf(share)}`} role="img" aria-label=${label}>
    <span style=${{ width: `${Math.min(100, share * 100)}%` }}></span>
  </span>`;
}

/** The quota of a namespace that is nearest to refuse, of keys or of bytes, as a bar and in words. */
export function Quota({ quota }) {
  if (!quota) return html`<span class="muted share">no quota</span>`;
  const show = quota.of === "keys" ? number : bytes;
  const most = quota.of === "keys" ? `${number(quota.most)} ${quota.most === 1 ? "key" : "keys"}` : bytes(quota.most);
  const label = `${Math.floor(quota.share * 100)} % of ${most}`;
  const tone = toneOf(quota.share);
  return html`<span class="share" title=${`${show(quota.used)} of ${most} are used`}>
    <${Meter} share=${quota.share} label=${label} /><span class=${tone ? `${tone}-text` : "muted"}>${label}</span>
  </span>`;
}

/** What namespaces hold, with their quotas. A token may not allow to see that. */
export const Held = ({ rows, now }) => html`<div class="scroll"><table class="held">
  <thead><tr><th>Namespace</th><th class="num">Keys</th><th class="num">Stored size</th><th>Quota</th><th>Updated</th></tr></thead>
  <tbody>
    ${rows.map((one) => {
      const href = namespaceHref(one.namespace);
      return html`<tr key=${one.namespace}>
        <td class="key">
          ${href ? html`<a data-row href=${href}>${one.namespace}</a>` : one.namespace}
          ${one.audit && html` <${Tag}>audited<//>`}
        </td>
        <td class="num">${number(one.keys)}</td>
        <td class="num">${bytes(one.kept_bytes)}</td>
        <td>${one.keys == null ? "–" : html`<${Quota} quota=${one.quota} />`}</td>
        <td><${When} at=${one.changed_at} now=${now} /></td>
      </tr>`;
    })}
  </tbody>
</table></div>`;

/** Copies a text. */
export function Copy({ text, label = "Copy" }) {
  const [done, setDone] = useState(false);
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = Object.assign(document.createElement("textarea"), { value: text });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    setDone(true);
    announce("Copied");
    setTimeout(() => setDone(false), 1500);
  }
  return html`<button type="button" class="quiet" onClick=${copy}>${done ? "Copied" : label}</button>`;
}

/** A version, plain so that it can be typed and compared, with a button that copies it. */
export const Version = ({ version }) => html`<span class="version">${String(version)}</span> <${Copy} text=${String(version)} />`;

/** A moment, with how long ago it was. */
export const When = ({ at, now }) =>
  at == null ? html`<span class="muted">–</span>` : html`<time datetime=${at} title=${time(at)}>${ago(at, now)}</time>`;

/** A deadline that counts down. `skew` is the store's time less this machine's. */
export function Countdown({ at, skew = 0 }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  if (at == null) return html`<span class="muted">never</span>`;
  const left = (Date.parse(at) - now - skew) / 1000;
  return left <= 0
    ? html`<span class="bad-text">expired</span>`
    : html`<time datetime=${at} title=${time(at)}>in ${span(left)}</time>`;
}

/** A dialog that keeps the focus and closes with Escape. */
export function Dialog({ title, onClose, children, wide }) {
  const box = useRef();
  useEffect(() => {
    const dialog = box.current;
    dialog.showModal();
    return () => dialog.open && dialog.close();
  }, []);
  return html`<dialog ref=${box} class=${wide ? "wide" : ""} onClose=${onClose} aria-labelledby="dialog-title">
    <header class="card-head">
      <h2 id="dialog-title">${title}</h2>
      <button type="button" class="quiet" aria-label="Close" onClick=${() => box.current.close()}>✕</button>
    </header>
    ${children}
  </dialog>`;
}

/** A text that is sent a moment after one stops typing. What comes back never replaces what is being typed. */
export function useTyped(initial, send, wait = 200) {
  const [text, setText] = useState(initial);
  const waiting = useRef(0);
  useEffect(() => {
    if (!waiting.current) setText(initial);
  }, [initial]);
  const typed = (event) => {
    const now = event.target.value;
    setText(now);
    clearTimeout(waiting.current);
    waiting.current = setTimeout(() => {
      waiting.current = 0;
      send(now);
    }, wait);
  };
  return [text, typed];
}

/** Call a function now and then, while the page is visible. One that takes longer is waited for: a reload ends the one before. */
export function useEvery(milliseconds, work) {
  const latest = useRef(work);
  latest.current = work;
  useEffect(() => {
    let busy = false;
    const timer = setInterval(async () => {
      if (busy || document.visibilityState !== "visible") return;
      busy = true;
      try {
        await latest.current();
      } finally {
        busy = false;
      }
    }, milliseconds);
    return () => clearInterval(timer);
  }, [milliseconds]);
}
