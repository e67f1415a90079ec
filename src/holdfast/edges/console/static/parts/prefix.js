// Deleting all keys below a prefix: the count first, then the prefix typed by hand.

import { html, useEffect, useState } from "../vendor/preact.js";
import { number, withQuery } from "./format.js";
import { call, page as fetchPage } from "./net.js";
import { announce, Dialog, Problem } from "./ui.js";

export function PrefixDelete({ doc, href, onClose, done }) {
  const [count, setCount] = useState(0);
  const [counting, setCounting] = useState(true);
  const [typed, setTyped] = useState("");
  const [gone, setGone] = useState(null);
  const [error, setError] = useState(null);

  useEffect(() => {
    let stopped = false;
    (async () => {
      let cursor = null;
      let total = 0;
      try {
        do {
          const part = await fetchPage(withQuery(href, { count: "1", cursor, filter: null, sort: null }));
          total += part.count;
          cursor = part.cursor;
          if (stopped) return;
          setCount(total);
        } while (cursor);
      } catch (refusal) {
        setError(refusal);
      }
      setCounting(false);
    })();
    return () => {
      stopped = true;
    };
  }, []);

  async function remove(event) {
    event.preventDefault();
    setError(null);
    let removed = 0;
    let cursor = null;
    setGone(0);
    try {
      do {
        const fields = { prefix: doc.root + doc.prefix, limit: 1000 };
        if (cursor) fields.cursor = cursor;
        const part = await call(doc.family, doc.owner, "delete_prefix", fields);
        removed += part.count;
        cursor = part.cursor;
        setGone(removed);
      } while (cursor);
      announce(`${number(removed)} keys were deleted`);
      onClose();
      done();
    } catch (refusal) {
      setError(refusal);
      setGone(null);
    }
  }

  return html`<${Dialog} title="Delete all keys below a prefix" onClose=${onClose}>
    <form onSubmit=${remove}>
      <p>
        <strong>${number(count)}${counting && "…"} keys</strong> of <code>${doc.namespace}</code> begin with
        ${" "}<code>${doc.prefix}</code>. ${counting && "Still counting."}
      </p>
      <label for="typed">Type the prefix to delete them</label>
      <input id="typed" class="mono" autocomplete="off" spellcheck="false" value=${typed} onInput=${(event) => setTyped(event.target.value)} />
      ${error && html`<${Problem} error=${error} />`}
      <div class="actions">
        <button type="submit" class="danger" disabled=${counting || typed !== doc.prefix || gone != null}>
          ${gone == null ? `Delete ${number(count)} keys` : `${number(gone)} deleted…`}
        </button>
        <button type="button" onClick=${onClose}>Cancel</button>
      </div>
    </form>
  <//>`;
}
