// The first run: what this is, where it is, and how to store a first entry.

import { html, useState } from "../vendor/preact.js";
import { Copy, Section, useEvery } from "./ui.js";

/** Lines to paste, each of which stores a first entry as it is. A token is taken from the environment. */
function lines(owner, open) {
  const { origin } = location;
  const url = open ? origin : `"${origin}?token=$HOLDFAST_TOKEN"`;
  const header = open ? "" : '-H "Authorization: Bearer $HOLDFAST_TOKEN" ';
  const token = open ? "" : ' + "?token=" + os.environ["HOLDFAST_TOKEN"]';
  const python = `import ${open ? "" : "os, "}holdfast.sync
with holdfast.sync.open("${origin}"${token}) as store: store.kv("${owner}").set("greeting", "hello")`;
  return [
    ["Shell", `holdfast set greeting '"hello"' --plugin ${owner} --url ${url}`],
    ["curl", `curl ${header}--json '{"key": "greeting", "value": "hello"}' ${origin}/v1/kv/${owner}:set`],
    ["Python", python],
  ];
}

export function Welcome({ doc, go, reload }) {
  const [NewEntry, setNewEntry] = useState(null);
  useEvery(2000, () => !NewEntry && reload());
  const { caller, addresses } = doc;
  const owner = caller.operator ? null : caller.owner;
  const project = owner?.includes("/");
  const { origin } = location;
  const open = caller.kind === "open";
  const places = [
    ["HTTP", `${origin}/v1`],
    ["MCP", `${origin}/mcp`],
    ["NATS", addresses?.nats],
    ["Data", addresses?.data],
  ];
  const begin = async () => {
    const { NewEntry: loaded } = await import("./edit.js");
    setNewEntry(() => loaded);
  };
  return html`<${Section} title="Nothing is stored yet" id="welcome">
    <div class="welcome">
      <p>
        Holdfast keeps keys, tables and blobs for your programs. Each plugin or project has a namespace of its own, every change
        has a version, and whatever is acknowledged is on disk. This console shows what is stored, who wrote it and what expires.
      </p>
      <dl class="facts">
        ${places.filter(([, place]) => place).map(([name, place]) => html`<div key=${name}><dt>${name}</dt><dd><span class="key">${place}</span> <${Copy} text=${place} /></dd></div>`)}
      </dl>
      <div class="actions">
        ${project
          ? html`<a class="button" href=${`/ui/semantic/${owner}`}>Store a first entry</a>`
          : html`<button type="button" class="primary" onClick=${begin}>New entry</button>`}
        ${caller.operator && html`<a class="button" href="/ui/tokens">Make a token</a>`}
        <a class="button" href="/ui/live">Watch changes</a>
      </div>
      ${!project &&
      html`<h3>Or paste one of these</h3>
        ${!open && html`<p class="muted">Put your token into the variable <code>HOLDFAST_TOKEN</code> first.</p>`}
        ${lines(owner ?? "demo", open).map(([name, text]) => html`<div class="paste" key=${name}><span class="muted">${name}</span><code>${text}</code><${Copy} text=${text} /></div>`)}`}
    </div>
    ${NewEntry &&
    html`<${NewEntry}
      doc=${{ family: "kv", owner, namespace: owner && `kv/${owner}`, root: "", prefix: "" }}
      onClose=${() => setNewEntry(null)}
      done=${(key, plugin) => go(`/ui/kv/${plugin}`)}
    />`}
  <//>`;
}
