// Numbers, sizes and times as text.

const count = new Intl.NumberFormat("en");
const moment = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" }); // 2026-11-16 22:20:21

export const number = (amount) => (amount == null ? "–" : count.format(amount));

export function bytes(amount) {
  if (amount == null) return "–";
  if (amount < 1000) return `${amount} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let value = amount / 1000;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function seconds(amount) {
  if (amount == null) return "–";
  if (amount < 0.001) return "< 1 ms";
  if (amount < 1) return `${Number((amount * 1000).toPrecision(3))} ms`;
  return `${Number(amount.toPrecision(3))} s`;
}

const STEPS = [
  [86400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];

/** A span in its largest units, such as 2 h 5 min. */
export function span(amount, units = 2) {
  let left = Math.max(0, Math.round(amount));
  if (left === 0) return "0 s";
  const parts = [];
  for (const [size, unit] of STEPS) {
    const whole = Math.floor(left / size);
    if (whole || parts.length) parts.push([whole, unit]);
    left -= whole * size;
    if (parts.length === units) break;
  }
  return parts
    .filter(([whole]) => whole)
    .map(([whole, unit]) => `${whole} ${unit}`)
    .join(" ");
}

const SIZES = { s: 1, m: 60, h: 3600, d: 86400, w: 604800 };

/** The seconds of a duration as the command line takes it: 90, 30m, 1h30m, 1d, 2w; null for any other text. */
export function secondsOf(text) {
  const plain = text.trim().toLowerCase();
  const parts = [...plain.matchAll(/(\d+(?:\.\d+)?)([smhdw])/g)];
  let total = 0;
  if (/^\d+$/.test(plain)) total = Number(plain);
  else if (parts.map(([part]) => part).join("") === plain) total = parts.reduce((sum, [, amount, unit]) => sum + amount * SIZES[unit], 0);
  return total >= 1 && Number.isSafeInteger(total) ? total : null;
}

/** Seconds as a duration that can be typed, such as 1d or 1h30m. */
export function durationOf(seconds) {
  let left = seconds;
  let text = "";
  for (const [unit, size] of Object.entries(SIZES).reverse()) {
    const whole = unit === "w" && left % size ? 0 : Math.floor(left / size);
    if (whole) text += `${whole}${unit}`;
    left -= whole * size;
  }
  return text || "0s";
}

/** How long ago a moment was, which is text or milliseconds. */
export const ago = (at, now) => {
  const past = (now - (typeof at === "number" ? at : Date.parse(at))) / 1000;
  return past < 1.5 ? "just now" : `${span(past, 1)} ago`;
};

/** The zone of the times that are shown, at a moment, such as UTC or UTC+01:00. */
export function zone(at = Date.now()) {
  const minutes = -new Date(at).getTimezoneOffset();
  const part = (amount) => String(Math.floor(Math.abs(amount))).padStart(2, "0");
  return minutes ? `UTC${minutes < 0 ? "−" : "+"}${part(minutes / 60)}:${part(minutes % 60)}` : "UTC";
}

export const time = (at) => (at == null ? "–" : `${moment.format(new Date(at))} ${zone(at)}`);
export const clock = (at) => new Date(at).toLocaleTimeString("en-GB");

/** What keeps a record of who looks at a value, and why: `audit`, `log`, or null if the visitor may not know. */
export const recordedBy = (recorded) =>
  ({
    audit: "The audit records your name and your reason.",
    log: "This namespace has no audit: your name and your reason are written to the service's log alone.",
  })[recorded] ?? "Your token does not show the policy: if this namespace has an audit, it records your name and your reason.";

/** The address of an entry's page. A path can't hold the parts . and .., which browsers remove. */
export function entryHref(family, owner, key) {
  const root = `/ui/${family}/${owner}`;
  const dots = key.split("/").some((part) => part === "." || part === "..");
  if (dots) return `${root}?key=${encodeURIComponent(key)}`;
  return `${root}/${key.split("/").map(encodeURIComponent).join("/")}`;
}

/** The same address with other parameters; those that are null or empty are left out. */
export function withQuery(href, changes) {
  const url = new URL(href, location.href);
  for (const [name, parameter] of Object.entries(changes)) {
    if (parameter == null || parameter === "" || parameter === false) url.searchParams.delete(name);
    else url.searchParams.set(name, parameter);
  }
  return url.pathname + url.search;
}

/** The page of a namespace; null if it has none. */
export function namespaceHref(namespace) {
  const [family, ...owner] = namespace.split("/");
  const pages = { kv: "kv", semantic: "semantic", table: "tables", blob: "blobs" };
  return pages[family] ? `/ui/${pages[family]}/${owner.join("/")}` : null;
}
