// Blobs: the plugins that have some, and the blobs of one of them.

import { html, useState } from "../vendor/preact.js";
import { Filters, More, Rows } from "../parts/actions.js";
import { bytes, entryHref } from "../parts/format.js";
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

function List({ doc, href, go }) {
  const [uploading, setUploading] = useState(false);
  const upload = doc.may.includes("put") && html`<button type="button" onClick=${() => setUploading(true)}>Upload</button>`;
  return html`
    <${Filters} fields=${[["prefix", "Name begins with", ""]]} values=${doc} href=${href} go=${go} reset=${{ cursor: null }} />
    <${Section} id="blobs" title="Blobs" aside=${upload}>
      ${!doc.blobs.length && html`<p class="muted">${doc.prefix ? "No blob matches." : "This plugin has no blob."}</p>`}
      ${doc.blobs.length > 0 &&
      html`<${Rows}><table>
        <thead><tr><th>Name</th><th>Type</th><th class="num">Size</th><th>Writer</th><th>Changed</th><th>Expires</th></tr></thead>
        <tbody>
          ${doc.blobs.map(
            (one) => html`<tr key=${one.name}>
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
    ${uploading && html`<${Upload} plugin=${doc.plugin} prefix=${doc.prefix} onClose=${() => setUploading(false)} done=${(name) => go(entryHref("blobs", doc.plugin, name))} />`}
  `;
}

export default function Blobs({ doc, href, go }) {
  return doc.plugin ? html`<${List} doc=${doc} href=${href} go=${go} />` : html`<${All} doc=${doc} href=${href} go=${go} />`;
}
