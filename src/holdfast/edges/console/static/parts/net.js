// Requests to the service: JSON of pages, and calls of verbs at /v1.
//
// Data comes from this origin alone, and a refusal is always a `Refusal` with the server's own words.

export class Refusal extends Error {
  constructor(status, problem, text = "{}") {
    super(problem.detail || `the service answered ${status}`);
    this.status = status;
    this.code = problem.code || "";
    this.problem = problem;
    this.text = text;
  }
}

/** A number that JavaScript can't hold exactly, as it is written. */
export class Exact {
  constructor(source) {
    this.source = source;
  }

  toString() {
    return this.source;
  }

  toJSON() {
    return JSON.rawJSON ? JSON.rawJSON(this.source) : Number(this.source);
  }
}

/** An answer of the service. Integers that JavaScript can't hold are `Exact`; looking for them takes time. */
function decoded(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, (name, value, context) => {
    const long = typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source);
    return long ? new Exact(context.source) : value;
  });
}

async function answer(response) {
  const text = await response.text();
  let body = {};
  try {
    body = decoded(text);
  } catch {
    body = { detail: text.slice(0, 200) }; // a refusal of the door is plain text
  }
  if (!response.ok) throw new Refusal(response.status, body, text);
  return body;
}

async function reached(request) {
  try {
    return await request();
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Refusal(0, { detail: "The service can't be reached. It may be restarting.", code: "UNREACHABLE" });
  }
}

/** Get the JSON of a page. */
export async function page(href, signal) {
  const headers = { Accept: "application/json" };
  return answer(await reached(() => fetch(href, { headers, signal, cache: "no-store", redirect: "error" })));
}

/** The writer of what a person changes here. */
export const WRITER = "console:edit";

/** Call a verb whose field `name` is JSON text, which is sent as it is: numbers stay exact. */
export async function write(family, owner, verb, name, text, fields) {
  const rest = JSON.stringify(fields).slice(1);
  return post(`/v1/${family}/${owner}:${verb}`, `{"${name}":${text}${rest === "}" ? "" : ","}${rest}`);
}

/** An id for a write, with which a repeated request is done once. */
export function requestId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `console-${[...bytes].map((one) => one.toString(16).padStart(2, "0")).join("")}`;
}

/** Call a verb: `owner` is a plugin or tenant/project, and empty for operators' verbs. */
export async function call(family, owner, verb, fields = {}) {
  const path = owner ? `${family}/${owner}` : family;
  return post(`/v1/${path}:${verb}`, fields);
}

/** Send JSON. `fields` may be text that is JSON already. */
export async function post(href, fields) {
  const headers = { "Content-Type": "application/json", Accept: "application/json" };
  const body = typeof fields === "string" ? fields : JSON.stringify(fields);
  return answer(await reached(() => fetch(href, { method: "POST", headers, body, redirect: "error" })));
}
