// Storing the bytes of a file as a blob: as a new one, or over the version that was seen.

import { html, useRef, useState } from "../vendor/preact.js";
import { Ttl, ttlFields } from "./edit.js";
import { bytes } from "./format.js";
import { Refusal, requestId, WRITER } from "./net.js";
import { announce, Dialog, Problem } from "./ui.js";

const PLAIN = "application/octet-stream";

/** Whether an address can hold a name: browsers remove the parts . and .. from a path. */
const fits = (name) => !name.split("/").some((part) => part === "." || part === "..");

/** Send a file with the version that it replaces, 0 for none. `progress` is called with the bytes that were sent. */
function send(href, file, { expected, type, ttl }, progress, control) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest(); // fetch does not say how much it has sent
    const unreachable = () => reject(new Refusal(0, { detail: "The service can't be reached. It may be restarting.", code: "UNREACHABLE" }));
    request.open("PUT", href);
    request.setRequestHeader("Content-Type", type || PLAIN);
    request.setRequestHeader("Holdfast-Writer", WRITER);
    request.setRequestHeader("Holdfast-Request-Id", requestId());
    request.setRequestHeader(expected ? "If-Match" : "If-None-Match", expected ? `"${expected}"` : "*");
    if (ttl.keep_ttl) request.setRequestHeader("Holdfast-TTL", "keep");
    else if (ttl.ttl) request.setRequestHeader("Holdfast-TTL", String(ttl.ttl));
    request.upload.onprogress = (event) => progress(event.loaded);
    request.onerror = unreachable;
    request.onabort = () => reject(new Error("The upload was stopped. Nothing was stored."));
    request.onload = () => {
      let body = {};
      try {
        body = JSON.parse(request.responseText);
      } catch {
        body = { detail: request.responseText.slice(0, 200) };
      }
      if (request.status >= 200 && request.status < 300) resolve(body);
      else reject(new Refusal(request.status, body, request.responseText));
    };
    control.current = request;
    request.send(file);
  });
}

/**
 * Upload a file. `blob` is what it replaces, and null for a new blob below `prefix`. A blob that is there already, or
 * was written meanwhile, is replaced only when the person has seen whose it is and says so.
 */
export function Upload({ plugin, blob, prefix = "", onClose, done }) {
  const [file, setFile] = useState(null);
  const [name, setName] = useState(blob ? blob.name : prefix);
  const [type, setType] = useState("");
  const [ttl, setTtl] = useState(blob ? "keep" : "none");
  const [expected, setExpected] = useState(blob ? blob.version : 0);
  const [other, setOther] = useState(undefined);
  const [sent, setSent] = useState(null);
  const [error, setError] = useState(null);
  const control = useRef(null);

  const choose = (event) => {
    const [first = null] = event.target.files;
    setFile(first);
    if (!first) return;
    if (!blob && (name === prefix || name === prefix + file?.name)) setName(prefix + first.name);
    setType(first.type || PLAIN);
  };

  async function save(event) {
    event.preventDefault();
    setError(null);
    setSent(0);
    const href = `/v1/blob/${plugin}/${name.split("/").map(encodeURIComponent).join("/")}`;
    try {
      const stored = await send(href, file, { expected, type, ttl: ttlFields(ttl) }, setSent, control);
      announce(`Version ${stored.version} was saved`);
      onClose();
      done(name);
    } catch (refusal) {
      if (refusal.code === "VERSION_CONFLICT") {
        const current = refusal.problem.current ?? null;
        setOther(current);
        setExpected(current ? current.version : 0);
      } else setError(refusal);
    }
    setSent(null);
  }

  const rename = (event) => {
    setName(event.target.value);
    if (blob || other === undefined) return;
    setOther(undefined); // it is another blob now
    setExpected(0);
  };
  const stop = () => (sent == null ? onClose() : control.current?.abort());
  const unfit = !file || !name || !fits(name) || ttlFields(ttl) == null || sent != null;
  return html`<${Dialog} title=${blob ? `Replace ${blob.name}` : `Upload to ${plugin}`} onClose=${onClose}>
    <form onSubmit=${save}>
      <label for="file">File</label>
      <input id="file" type="file" required onChange=${choose} />
      <div class="row spaced">
        ${!blob && html`<div class="grow"><label for="blob-name">Name</label><input id="blob-name" class="mono" required spellcheck="false" autocomplete="off" value=${name} onInput=${rename} /></div>`}
        <div class="grow"><label for="blob-type">Type</label><input id="blob-type" class="mono" placeholder=${PLAIN} spellcheck="false" autocomplete="off" value=${type} onInput=${(event) => setType(event.target.value)} /></div>
      </div>
      ${!fits(name) && html`<p class="bad-text small">A name with the parts . or .. has no address. Use <code>holdfast blob put</code> for it.</p>`}
      <${Ttl} choice=${ttl} setChoice=${setTtl} keep=${Boolean(blob)} />
      ${other !== undefined &&
      html`<p class="problem" role="alert">
        ${other
          ? `Version ${other.version} of this blob was written by ${other.last_writer}, with ${bytes(other.value.size)}. Nothing of yours was stored. Press again to replace that version.`
          : "The blob was deleted meanwhile. Press again to store a new one."}
      </p>`}
      ${error && html`<${Problem} error=${error} />`}
      ${sent != null && html`<progress max=${file.size || 1} value=${sent} aria-label="Sent bytes"></progress><p class="muted small" role="status">${bytes(sent)} of ${bytes(file.size)}</p>`}
      <div class="actions">
        <button type="submit" class=${other ? "danger" : "primary"} disabled=${unfit}>${other ? `Replace version ${other.version}` : "Save"}</button>
        <button type="button" onClick=${stop}>${sent == null ? "Cancel" : "Stop"}</button>
      </div>
    </form>
  <//>`;
}
