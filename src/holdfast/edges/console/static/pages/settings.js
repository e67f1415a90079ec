// The settings in force, and where each came from.

import { html, useState } from "../vendor/preact.js";
import { Rows } from "../parts/acting.js";
import { Section, Tag } from "../parts/ui.js";

export const title = () => "Settings";

function shown(value) {
  if (value == null) return html`<span class="muted">not set</span>`;
  if (Array.isArray(value)) return value.length ? value.join(", ") : html`<span class="muted">none</span>`;
  return String(value);
}

/** A text in which backquotes mark code. */
const Words = ({ text }) => text.split("`").map((part, position) => (position % 2 ? html`<code>${part}</code>` : part));

export default function Settings({ doc }) {
  const [words, setWords] = useState("");
  const [given, setGiven] = useState(false);
  const fits = (one) =>
    (!given || one.source !== "default") && `${one.setting} ${one.help}`.toLowerCase().includes(words.toLowerCase());
  const rows = doc.settings.filter(fits);
  return html`
    <div class="row filters" role="search">
      <div class="grow">
        <label for="filter-settings">Filter</label>
        <input id="filter-settings" data-filter value=${words} onInput=${(event) => setWords(event.target.value)} placeholder="name or words" />
      </div>
      <label class="check"><input type="checkbox" checked=${given} onChange=${(event) => setGiven(event.target.checked)} /> only those that were set</label>
    </div>
    <${Section} id="settings" title="Settings" aside=${html`<span class="muted">read at the start; credentials are masked</span>`}>
      ${!rows.length && html`<p class="muted">No setting matches.</p>`}
      ${rows.length > 0 &&
      html`<${Rows}><table>
        <thead><tr><th>Setting</th><th>Value</th><th>Comes from</th></tr></thead>
        <tbody>
          ${rows.map(
            (one) => html`<tr key=${one.setting}>
              <td><div><span class="key">${one.setting}</span> <span class="block muted hint"><${Words} text=${one.help} /></span></div></td>
              <td class="key">${shown(one.value)}</td>
              <td>${one.source === "default" ? html`<span class="muted">default</span>` : html`<${Tag} tone="good">${one.source}<//>`}</td>
            </tr>`,
          )}
        </tbody>
      </table><//>`}
    <//>
  `;
}
