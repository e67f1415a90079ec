// The plugins that have tables or blobs, as a list that leads to each of them.

import { html } from "../vendor/preact.js";
import { Find } from "./actions.js";
import { bytes, number } from "./format.js";
import { Empty, Section, When } from "./ui.js";

/** The plugins of a page. `path` is the address below which each has its page, and `counted` names what they keep. */
export function Plugins({ doc, path, counted, href, go }) {
  if (!doc.plugins.length) return html`<${Find} hint="part of a name" href=${href} go=${go} /><${Empty} title="No plugin matches">Try another part of a name.<//>`;
  return html`<${Find} hint="part of a name" href=${href} go=${go} />
    <${Section} id="plugins" title="Plugins">
    <div class="scroll"><table>
      <thead><tr><th>Plugin</th><th class="num">${counted}</th><th class="num">Stored size</th><th>Updated</th></tr></thead>
      <tbody>
        ${doc.plugins.map(
          (one) => html`<tr key=${one.plugin}>
            <td class="key"><a data-row href=${`${path}/${encodeURIComponent(one.plugin)}`}>${one.plugin}</a></td>
            <td class="num">${number(one.keys)}</td>
            <td class="num">${bytes(one.kept_bytes)}</td>
            <td><${When} at=${one.changed_at} now=${doc.now} /></td>
          </tr>`,
        )}
      </tbody>
    </table></div>
  <//>`;
}
