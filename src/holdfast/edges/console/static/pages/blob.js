// One blob: its description, and its content as an image or as text, at once or after a reveal.

import { html, useEffect, useState } from "../vendor/preact.js";
import { Reveal } from "../parts/actions.js";
import { bytes, number, time } from "../parts/format.js";
import { Copy, Countdown, Problem, Section } from "../parts/ui.js";

export const title = (doc) => (doc ? doc.blob.name : "Blob");
export const crumbs = (doc) =>
  doc && [
    ["Blobs", "/ui/blobs"],
    [doc.plugin, `/ui/blobs/${encodeURIComponent(doc.plugin)}`],
  ];

const MOST_TEXT = 65536;

/** The beginning of a blob as text. It is shown as text, whatever it is. */
function Text({ blob }) {
  const [state, setState] = useState({ text: null, error: null });
  useEffect(() => {
    const headers = { Range: `bytes=0-${MOST_TEXT - 1}` };
    fetch(blob.href, { headers, redirect: "error" })
      .then(async (response) => {
        if (!response.ok) throw new Error(`the service answered ${response.status}`);
        setState({ text: await response.text(), error: null });
      })
      .catch((error) => setState({ text: null, error }));
  }, [blob.href, blob.version]);
  if (state.error) return html`<${Problem} error=${state.error} />`;
  return html`<pre class="json" tabindex="0">${state.text ?? "Loading…"}</pre>
    ${blob.size > MOST_TEXT && html`<p class="muted">The first ${bytes(MOST_TEXT)} of ${bytes(blob.size)} are shown.</p>`}`;
}

function Content({ doc }) {
  const { blob, preview } = doc;
  const name = blob.name.split("/").at(-1);
  return html`
    ${blob.size === 0 && html`<p class="muted">The blob has no bytes.</p>`}
    ${blob.size > 0 && preview === "image" && html`<img class="preview" src=${blob.href} alt=${`Content of ${blob.name}`} />`}
    ${blob.size > 0 && preview === "text" && html`<${Text} blob=${blob} />`}
    ${blob.size > 0 && preview == null && html`<p class="muted">There is no preview of ${blob.content_type} of this size.</p>`}
    <div class="actions"><a class="button" href=${blob.href} download=${name}>Download ${bytes(blob.size)}</a></div>
  `;
}

export default function Blob({ doc: masked, href }) {
  const [shown, setShown] = useState(null);
  const doc = shown || masked;
  const { blob } = doc;
  return html`
    <${Section} id="facts" title="Blob">
      <dl class="facts">
        <div><dt>Type</dt><dd>${blob.content_type}</dd></div>
        <div><dt>Size</dt><dd>${bytes(blob.size)}${blob.size >= 1000 && html` <span class="muted">(${number(blob.size)} bytes)</span>`}</dd></div>
        <div><dt>Checksum</dt><dd class="key">${blob.checksum} <${Copy} text=${blob.checksum} /></dd></div>
        <div><dt>Version</dt><dd>${number(blob.version)}</dd></div>
        <div><dt>Writer</dt><dd class="key">${blob.last_writer}</dd></div>
        <div><dt>Made</dt><dd>${time(blob.created_at)}</dd></div>
        <div><dt>Changed</dt><dd>${time(blob.updated_at)}</dd></div>
        <div><dt>Expires</dt><dd><${Countdown} at=${blob.expires_at} skew=${doc.now - Date.now()} /></dd></div>
        ${Object.entries(blob.metadata).map(([name, text]) => html`<div key=${name}><dt class="key">${name}</dt><dd class="key">${text}</dd></div>`)}
      </dl>
    <//>
    <${Section} id="content" title="Content">
      ${!doc.revealed && html`<p class="muted">The content is hidden: ${bytes(blob.size)} of ${blob.content_type}.</p>`}
      ${doc.revealed ? html`<${Content} doc=${doc} />` : html`<${Reveal} policy=${doc.reveal} recorded=${doc.recorded} href=${href} onShow=${setShown} what="content" />`}
    <//>
  `;
}
