// The settings in force, and where each came from.

import { html } from "../vendor/preact.js";
import { Find, Rows } from "../parts/actions.js";
import { withQuery } from "../parts/format.js";
import { Section, Tag } from "../parts/ui.js";

export const title = () => "Settings";

function shown(value) {
  if (value == null) return html`<span class="muted">not set</span>`;
  if (Array.isArray(value)) return value.length ? value.join(", ") : html`<span class="muted">none</span>`;
  return String(value);
}

/** A text in which backquotes mark code. */
const Words = ({ text }) => text.split("`").map((part, position) => (position % 2 ? html`<code>${part}</code>` : part));

export default function Settings({ doc, href, go }) {
  const rows = doc.settings;
  const switched = (event) => go(withQuery(href, { given: event.target.checked ? "1" : null }), { replace: true, quiet: true });
  return html`
    <${Find} hint="name or words" href=${href} go=${go}>
      <label class="check"><input type="checkbox" checked=${doc.given} onChange=${switched} /> only those that were set</label>
    <//>
    <${Section} id="settings" title="Settings" aside=${html`<span class="muted">read at the start; credentials are masked</span>`}>
      ${!rows.length && html`<p class="muted">No setting matches.</p>`}
      ${rows.length > 0 &&
      html`<${Rows}><table class="settings">
        <thead><tr><th>Setting</th><th>Value</th><th>Comes from</th></tr></thead>
        <tbody>
          ${rows.map(
            (one) => html`<tr key=${one.setting} data-row tabindex="-1">
              <td class="lead"><div><span class="key">${one.setting}</span> <span class="block muted hint"><${Words} text=${one.help} /></span></div></td>
              <td class="key">${shown(one.value)}</td>
              <td>${one.source === "default" ? html`<span class="muted">default</span>` : html`<${Tag} tone="good">${one.source}<//>`}</td>
            </tr>`,
          )}
        </tbody>
      </table><//>`}
    <//>
  `;
}
