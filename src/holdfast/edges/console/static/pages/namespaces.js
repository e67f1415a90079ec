// All namespaces, with a filter.

import { html } from "../vendor/preact.js";
import { Find, More } from "../parts/actions.js";
import { number } from "../parts/format.js";
import { Empty, Held, Section } from "../parts/ui.js";

export const title = () => "Browse";

export default function Namespaces({ doc, href, go }) {
  const rows = doc.namespaces;
  return html`
    <${Find} hint="part of a name" href=${href} go=${go} />
    <${Section} title="Namespaces" id="all" aside=${html`<span class="muted">${number(rows.length)} shown</span>`}>
      ${rows.length
        ? html`<${Held} rows=${rows} now=${doc.now} />`
        : html`<${Empty} title=${doc.filter ? "No namespace matches" : "There are no namespaces yet"}>
            A namespace begins with its first entry.
          <//>`}
      <${More} href=${href} next=${doc.cursor} />
    <//>
  `;
}
