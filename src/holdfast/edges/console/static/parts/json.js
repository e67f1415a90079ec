// JSON whose numbers stay as they are written, however long they are.

/** A number that JavaScript can't hold exactly, as it is written. */
export class Exact {
  constructor(source) {
    this.source = source;
  }

  toString() {
    return this.source;
  }
}

export function parsed(text) {
  return JSON.parse(text, (name, value, context) => {
    const source = typeof value === "number" && context?.source;
    return source && !Number.isSafeInteger(value) && String(value) !== source ? new Exact(source) : value;
  });
}

/** The text of a value that `parsed` has made. */
export function textOf(value) {
  if (value instanceof Exact) return value.source;
  if (Array.isArray(value)) return `[${value.map(textOf).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const fields = Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}:${textOf(one)}`);
  return `{${fields.join(",")}}`;
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
