// The policies of all namespaces.

import { html } from "../vendor/preact.js";
import { Find, Rows } from "../parts/actions.js";
import { bytes, number, span } from "../parts/format.js";
import { Empty, Section, Tag } from "../parts/ui.js";

export const title = () => "Policies";

export const policyHref = (namespace) => `/ui/policies/${namespace.split("/").map(encodeURIComponent).join("/")}`;

/** What a field says, in words. */
function worded(name, field) {
  if (typeof field === "boolean") return field ? "yes" : "no";
  if (name.endsWith("_bytes")) return bytes(field);
  if (/^ttl_|_retention$/.test(name)) return span(field);
  return typeof field === "string" ? field : number(field);
}

export default function Policies({ doc, href, go }) {
  if (!doc.namespaces.length && !doc.filter) return html`<${Empty} title="There are no namespaces yet">A namespace appears with its first entry.<//>`;
  return html`<${Find} hint="part of a name, or a field such as quota" href=${href} go=${go} />
  <${Section} id="policies" title="Namespaces">
    ${!doc.namespaces.length && html`<p class="muted">No namespace matches.</p>`}
    ${doc.namespaces.length > 0 && html`<${Rows}><table>
      <thead><tr><th>Namespace</th><th class="num">Keys</th><th>Policy</th></tr></thead>
      <tbody>
        ${doc.namespaces.map(
          (one) => html`<tr key=${one.namespace}>
            <td class="key lead"><a data-row href=${policyHref(one.namespace)}>${one.namespace}</a></td>
            <td class="num">${number(one.keys)}</td>
            <td><span>
              ${Object.entries(one.policy).map(([name, field]) => html`<${Tag} key=${name}>${name}: ${worded(name, field)}<//> `)}
              ${!Object.keys(one.policy).length && html`<span class="muted">defaults</span>`}
            </span></td>
          </tr>`,
        )}
      </tbody>
    </table><//>`}
  <//>`;
}
