// The login: with a token, or with a link that `holdfast up` printed.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { post } from "../parts/net.js";

export const title = () => "Log in";
export const plain = true;

export default function Login({ href, go }) {
  const [once] = useState(() => new URL(href, location.href).searchParams.get("once"));
  const [spent, setSpent] = useState(false);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const field = useRef();
  const target = href.startsWith("/ui/login") ? "/" : href;

  useEffect(() => {
    // The secret must not stay in the history, nor in a bookmark.
    if (once) history.replaceState(null, "", "/ui/login");
    field.current?.focus();
  }, [once, spent]);

  async function send(fields) {
    setBusy(true);
    setError(null);
    try {
      await post("/ui/login", fields);
      go(target, { replace: true });
    } catch (refusal) {
      setError(refusal);
      setBusy(false);
      if (fields.once) setSpent(true);
    }
  }

  const withToken = (event) => {
    event.preventDefault();
    send({ token: new FormData(event.target).get("token") });
  };

  return html`<div class="login card">
    <p class="brand"><span class="mark" aria-hidden="true"></span>Holdfast</p>
    <h1>Log in</h1>
    ${error && html`<p class="problem" role="alert">${error.message}</p>`}
    ${once && !spent
      ? html`<p>This link opens the console once, with the rights of an operator on this machine.</p>
          <button ref=${field} type="button" class="primary" disabled=${busy} onClick=${() => send({ once })}>
            Open the console
          </button>`
      : html`<form onSubmit=${withToken}>
          <label for="token">Token</label>
          <input
            ref=${field}
            id="token"
            name="token"
            type="password"
            required
            autocomplete="off"
            spellcheck="false"
            placeholder="hf_…"
          />
          <button type="submit" class="primary" disabled=${busy}>Log in</button>
          <p class="muted">
            <code>holdfast token create --operator</code> makes a token for an operator;${" "}
            <code>--plugin NAME --verbs get,list,stats</code> makes one that can only look.
          </p>
        </form>`}
  </div>`;
}
