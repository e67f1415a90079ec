// JSON whose numbers stay as they are written, however long they are.

import { Exact } from "./net.js";

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
