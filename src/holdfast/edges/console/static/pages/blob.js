// One blob: its description, and its content as an image or as text, at once or after a reveal.

import { html, useEffect, useState } from "../vendor/preact.js";
import { Reveal } from "../parts/actions.js";
import { Step } from "../parts/edit.js";
import { bytes, number, time } from "../parts/format.js";
import { Copy, Countdown, Problem, Section, Version } from "../parts/ui.js";
import { Upload } from "../parts/upload.js";

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
  if (blob.size === 0) return html`<p class="muted">The blob has no bytes.</p>`;
  if (preview === "image") return html`<img class="preview" src=${blob.href} alt=${`Content of ${blob.name}`} />`;
  if (preview === "text") return html`<${Text} blob=${blob} />`;
  return html`<p class="muted">There is no preview of ${blob.content_type} of this size.</p>`;
}

/** A blob as a subject of edits. */
const subjectOf = ({ plugin, blob }) => ({
  noun: "blob",
  name: blob.name,
  version: blob.version,
  family: "blob",
  owner: plugin,
  fields: { key: blob.name },
  removes: "delete",
});

function download({ blob }) {
  const link = Object.assign(document.createElement("a"), { href: blob.href, download: blob.name.split("/").at(-1) });
  document.body.append(link);
  link.click();
  link.remove();
}

export default function Blob({ doc: masked, href, go, reload }) {
  const [shown, setShown] = useState(null);
  const [dialog, setDialog] = useState(null);
  const doc = shown || masked;
  const { blob } = doc;
  const may = (verb) => doc.may.includes(verb);
  const close = () => setDialog(null);
  const changed = () => {
    setShown(null);
    reload();
  };
  const fetched = (revealed) => {
    setShown(revealed);
    download(revealed);
  };
  const size = `Download ${bytes(blob.size)}`;
  return html`
    <div class="actions top">
      ${blob.href &&
      doc.reveal !== "never" &&
      may("reveal") &&
      (doc.revealed
        ? html`<button type="button" class="primary" onClick=${() => download(doc)}>${size}</button>`
        : html`<${Reveal} policy=${doc.reveal} recorded=${doc.recorded} href=${href} onShow=${fetched} what="content" label=${size} />`)}
      ${blob.href && may("put") && html`<button type="button" onClick=${() => setDialog("replace")}>Replace</button>`}
      ${may("set_ttl") && html`<button type="button" onClick=${() => setDialog("ttl")}>Expiry</button>`}
      ${may("delete") && html`<button type="button" class="danger" onClick=${() => setDialog("delete")}>Delete</button>`}
    </div>
    <${Section} id="facts" title="Blob">
      <dl class="facts">
        <div><dt>Type</dt><dd>${blob.content_type}</dd></div>
        <div><dt>Stored size</dt><dd>${bytes(blob.size)}${blob.size >= 1000 && html` <span class="muted">(${number(blob.size)} bytes)</span>`}</dd></div>
        <div><dt>Checksum</dt><dd class="key">${blob.checksum} <${Copy} text=${blob.checksum} /></dd></div>
        <div><dt>Version</dt><dd><${Version} version=${blob.version} /></dd></div>
        <div><dt>Writer</dt><dd class="key">${blob.last_writer}</dd></div>
        <div><dt>Created</dt><dd>${time(blob.created_at)}</dd></div>
        <div><dt>Updated</dt><dd>${time(blob.updated_at)}</dd></div>
        <div><dt>Expires</dt><dd><${Countdown} at=${blob.expires_at} skew=${doc.now - Date.now()} /></dd></div>
        ${Object.entries(blob.metadata).map(([name, text]) => html`<div key=${name}><dt class="key">${name}</dt><dd class="key">${text}</dd></div>`)}
      </dl>
    <//>
    <${Section} id="content" title="Content">
      ${!doc.revealed && html`<p class="muted">The content is hidden: ${bytes(blob.size)} of ${blob.content_type}.</p>`}
      ${doc.revealed ? html`<${Content} doc=${doc} />` : html`<${Reveal} policy=${doc.reveal} recorded=${doc.recorded} href=${href} onShow=${setShown} what="content" />`}
    <//>
    ${dialog === "replace" && html`<${Upload} plugin=${doc.plugin} blob=${blob} onClose=${close} done=${changed} />`}
    ${["ttl", "delete"].includes(dialog) &&
    html`<${Step} subject=${subjectOf(doc)} kind=${dialog} onClose=${close} done=${dialog === "delete" ? () => go(`/ui/blobs/${doc.plugin}`, { replace: true }) : changed} />`}
  `;
}
