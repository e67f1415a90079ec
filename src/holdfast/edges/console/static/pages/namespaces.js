// All namespaces, with a filter.

import { html } from "../vendor/preact.js";
import { Find, More } from "../parts/actions.js";
import { bytes, number } from "../parts/format.js";
import { Empty, Section, Tag, When } from "../parts/ui.js";

export const title = () => "Browse";

export default function Namespaces({ doc, href, go }) {
  const rows = doc.namespaces;
  return html`
    <${Find} hint="part of a name" href=${href} go=${go} />
    <${Section} title="Namespaces" id="all" aside=${html`<span class="muted">${number(rows.length)} shown</span>`}>
      ${rows.length
        ? html`<div class="scroll"><table>
            <thead><tr><th>Namespace</th><th class="num">Keys</th><th class="num">Stored size</th><th>Updated</th></tr></thead>
            <tbody>
              ${rows.map(
                (one) => html`<tr key=${one.namespace}>
                  <td class="key">
                    ${one.href ? html`<a data-row href=${one.href}>${one.namespace}</a>` : one.namespace}
                    ${one.audit && html` <${Tag}>audited<//>`}
                  </td>
                  <td class="num">${number(one.keys)}</td>
                  <td class="num">${bytes(one.kept_bytes)}</td>
                  <td><${When} at=${one.changed_at} now=${doc.now} /></td>
                </tr>`,
              )}
            </tbody>
          </table></div>`
        : html`<${Empty} title=${doc.filter ? "No namespace matches" : "There are no namespaces yet"}>
            A namespace begins with its first entry.
          <//>`}
      <${More} href=${href} next=${doc.cursor} />
    <//>
  `;
}
