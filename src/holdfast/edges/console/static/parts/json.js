// JSON whose numbers stay as they are written, however long they are.

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
export function decoded(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, (name, value, context) => {
    const long = typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source);
    return long ? new Exact(context.source) : value;
  });
}

export function parsed(text) {
  return JSON.parse(text, (name, value, context) => {
    const source = typeof value === "number" && context?.source;
    return source && !Number.isSafeInteger(value) && String(value) !== source ? new Exact(source) : value;
  });
}

/** JSON text with line breaks and indents. Numbers stay as they are written, however long. */
export function pretty(text) {
  let shown = "";
  let depth = 0;
  const newLine = () => `\n${"  ".repeat(depth)}`;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    if (token === "{" || token === "[") {
      depth += 1;
      shown += token + newLine();
    } else if (token === "}" || token === "]") {
      depth -= 1;
      const empty = shown.trimEnd().endsWith(token === "}" ? "{" : "[");
      shown = empty ? shown.trimEnd() + token : shown + newLine() + token;
    } else if (token === ",") shown += token + newLine();
    else if (token === ":") shown += ": ";
    else shown += token;
  }
  return shown;
}
