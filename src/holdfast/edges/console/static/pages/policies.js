// The policies of all namespaces.

import { html } from "../vendor/preact.js";
import { Rows } from "../parts/acting.js";
import { number } from "../parts/format.js";
import { Empty, Section, Tag } from "../parts/ui.js";

export const title = () => "Policies";

export const policyHref = (namespace) => `/ui/policies/${namespace.split("/").map(encodeURIComponent).join("/")}`;

export default function Policies({ doc }) {
  if (!doc.namespaces.length) return html`<${Empty} title="There are no namespaces yet">A namespace appears with its first entry.<//>`;
  return html`<${Section} id="policies" title="Namespaces">
    <${Rows}><table>
      <thead><tr><th>Namespace</th><th class="num">Keys</th><th>Policy</th></tr></thead>
      <tbody>
        ${doc.namespaces.map(
          (one) => html`<tr key=${one.namespace}>
            <td class="key"><a data-row href=${policyHref(one.namespace)}>${one.namespace}</a></td>
            <td class="num">${number(one.keys)}</td>
            <td><span>
              ${Object.entries(one.policy).map(([name, said]) => html`<${Tag} key=${name}>${name} ${String(said)}<//> `)}
              ${!Object.keys(one.policy).length && html`<span class="muted">defaults</span>`}
            </span></td>
          </tr>`,
        )}
      </tbody>
    </table><//>
  <//>`;
}
