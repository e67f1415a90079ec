// Blobs: the plugins that have some, and the blobs of one of them.

import { html, useState } from "../vendor/preact.js";
import { Filters, More, Rows } from "../parts/actions.js";
import { Bulk, ChosenBar, Pick, PickAll, useChosen } from "../parts/bulk.js";
import { bytes, entryHref } from "../parts/format.js";
import { NamespaceHead } from "../parts/namespace.js";
import { call, requestId, WRITER } from "../parts/net.js";
import { Plugins } from "../parts/plugins.js";
import { Countdown, Empty, Section, When } from "../parts/ui.js";
import { Upload } from "../parts/upload.js";

export const title = (doc) => (doc?.plugin ? `Blobs of ${doc.plugin}` : "Blobs");
export const crumbs = (doc) => (doc?.plugin ? [["Blobs", "/ui/blobs"]] : null);

function All({ doc, href, go }) {
  if (!doc.plugins.length && !doc.filter) {
    return html`<${Empty} title="There are no blobs">
      <code>holdfast blob put logo.png ./logo.png --plugin demo</code> stores a first one.
    <//>`;
  }
  return html`<${Plugins} doc=${doc} path="/ui/blobs" counted="Blobs" href=${href} go=${go} />`;
}

function List({ doc, href, go, reload }) {
  const [uploading, setUploading] = useState(false);
  const [doomed, setDoomed] = useState(null);
  const chosen = useChosen(doc.blobs, (one) => one.name);
  const picks = doc.may.includes("delete") ? chosen : null;
  const upload = doc.may.includes("put") && html`<button type="button" onClick=${() => setUploading(true)}>Upload</button>`;
  return html`
    <${NamespaceHead} doc=${doc} counted="Blobs" lives=${doc.may.includes("changes")} />
    <${Filters} fields=${[["prefix", "Name begins with", ""]]} values=${doc} href=${href} go=${go} reset=${{ cursor: null }} />
    <${Section} id="blobs" title="Blobs" aside=${upload}>
      ${picks && html`<${ChosenBar} picks=${picks} actions=${[["Delete", () => setDoomed(picks.chosen), true]]} />`}
      ${!doc.blobs.length && html`<p class="muted">${doc.prefix ? "No blob matches." : "This plugin has no blob."}</p>`}
      ${doc.blobs.length > 0 &&
      html`<${Rows}><table>
        <thead><tr>${picks && html`<th class="pick"><${PickAll} picks=${picks} label="blobs" /></th>`}<th>Name</th><th>Type</th><th class="num">Stored size</th><th>Writer</th><th>Updated</th><th>Expires</th></tr></thead>
        <tbody>
          ${doc.blobs.map(
            (one) => html`<tr key=${one.name}>
              ${picks && html`<td class="pick"><${Pick} picks=${picks} row=${one} label=${one.name} /></td>`}
              <td class="key lead"><a data-row href=${entryHref("blobs", doc.plugin, one.name)}>${one.name}</a></td>
              <td>${one.content_type}</td>
              <td class="num">${bytes(one.size)}</td>
              <td class="key">${one.last_writer}</td>
              <td><${When} at=${one.updated_at} now=${doc.now} /></td>
              <td><${Countdown} at=${one.expires_at} skew=${doc.now - Date.now()} /></td>
            </tr>`,
          )}
        </tbody>
      </table><//>`}
      <${More} href=${href} next=${doc.cursor} />
    <//>
    ${doomed &&
    html`<${Bulk}
      action="Delete"
      noun="blob"
      destroys
      rows=${doomed}
      nameOf=${(one) => one.name}
      act=${(one) => call("blob", doc.plugin, "delete", { key: one.name, expected_version: one.version, request_id: requestId(), last_writer: WRITER })}
      onClose=${() => setDoomed(null)}
      done=${reload}
    >
      <p>A blob that was written since this list was read is left as it is.</p>
    <//>`}
    ${uploading && html`<${Upload} plugin=${doc.plugin} prefix=${doc.prefix} onClose=${() => setUploading(false)} done=${(name) => go(entryHref("blobs", doc.plugin, name))} />`}
  `;
}

export default function Blobs({ doc, href, go, reload }) {
  return doc.plugin ? html`<${List} doc=${doc} href=${href} go=${go} reload=${reload} />` : html`<${All} doc=${doc} href=${href} go=${go} />`;
}
