// The inbox in tabs: dead letters, locks, entries that expire soon, the trash and slow requests.

import { html, useState } from "../vendor/preact.js";
import { Choose, Confirm, Rows, useAction } from "../parts/actions.js";
import { Bulk, ChosenBar, Pick, PickAll, useChosen } from "../parts/bulk.js";
import { entryHref, number, withQuery } from "../parts/format.js";
import { call } from "../parts/net.js";
import { Countdown, Empty, Problem, Section, Tag, useEvery, When } from "../parts/ui.js";

export const title = () => "Inbox";

const SPANS = [
  ["600", "10 minutes"],
  ["", "1 hour"],
  ["86400", "1 day"],
  ["604800", "7 days"],
];

const split = (namespace) => [namespace.slice(0, namespace.indexOf("/")), namespace.slice(namespace.indexOf("/") + 1)];

function Key({ namespace, name }) {
  const [family, owner] = split(namespace);
  const linked = family === "kv" || family === "semantic";
  return html`<span class="where muted">${namespace}</span>
    ${linked ? html`<a data-row class="key" href=${entryHref(family, owner, name)}>${name}</a>` : html`<span class="key" data-row tabindex="-1">${name}</span>`}`;
}

/** What a button in a row is about, for those who do not see the row. */
const Of = ({ name }) => html`<span class="unseen"> ${name}</span>`;

function Part({ id, title, part, none, head, row, aside }) {
  return html`<${Section} id=${id} title=${title} aside=${aside}>
    ${part.refused && html`<p class="muted">${part.refused}</p>`}
    ${!part.refused && !part.rows.length && html`<p class="fine"><span class="dot"></span>${none}</p>`}
    ${part.rows.length > 0 &&
    html`<${Rows}><table>
      <thead><tr>${head.map((one) => (typeof one === "string" ? html`<th key=${one} class=${one.startsWith("#") ? "num" : null}>${one.replace("#", "")}</th>` : html`<th key="pick" class="pick">${one}</th>`))}</tr></thead>
      <tbody>${part.rows.map(row)}</tbody>
    </table><//>`}
    ${part.more && html`<p class="muted">There are more. Choose a namespace to see only its rows.</p>`}
  <//>`;
}

/** The request of a letter: without its values until a person asks for them, which the audit records. */
function Request({ letter }) {
  const [whole, setWhole] = useState(null);
  const [run, error, busy] = useAction();
  const reveal = async (event) => {
    event.preventDefault();
    const why = new FormData(event.target).get("why")?.trim();
    const fields = { namespace: letter.namespace, number: letter.number, ...(why ? { why } : {}) };
    const answer = await run(() => call("admin", "", "deadletter_reveal", fields), "The values are shown");
    if (answer?.letter) setWhole(answer.letter.request);
  };
  if (whole) return html`<pre class="json" tabindex="0">${JSON.stringify(whole, null, 2)}</pre>`;
  return html`
    <p>The request${letter.hidden.length > 0 && ` without ${letter.hidden.join(", ")}`}:</p>
    <pre class="json" tabindex="0">${JSON.stringify(letter.request, null, 2)}</pre>
    ${letter.hidden.length > 0 &&
    (letter.reveal === "never"
      ? html`<p class="muted">The policy of ${letter.namespace} says that values are never shown here.</p>`
      : html`<form class="row" onSubmit=${reveal}>
          ${letter.reveal === "audited" &&
          html`<div class="grow"><label for="letter-why">Why do you need to see them?</label>
            <input id="letter-why" name="why" required maxlength="500" autocomplete="off" /></div>`}
          <button type="submit" disabled=${busy}>Reveal the values</button>
        </form>`)}
    ${error && html`<${Problem} error=${error} />`}
  `;
}

/** Who wanted to write. The letter itself may be by another, such as a worker that gave up. */
const writerOf = ({ request, writer }) => request.last_writer ?? writer;

const letterName = (letter) => `${letter.namespace} ${letter.key} (${letter.number})`;

function Letters({ part, now, reload }) {
  const picks = useChosen(part.rows, letterName);
  const [bulk, setBulk] = useState(null);
  const [looked, setLooked] = useState(null);
  const [dropped, setDropped] = useState(null);
  const [run, error, busy, clear] = useAction();
  const begin = (action, verb, destroys) => setBulk({ action, verb, destroys, rows: picks.chosen });
  const about = (letter) => ({ namespace: letter.namespace, number: letter.number });
  const retry = async (letter) => {
    if (await run(() => call("admin", "", "deadletter_retry", about(letter)), "The request was retried")) reload();
  };
  const drop = async () => {
    if (await run(() => call("admin", "", "deadletter_drop", about(dropped)), "The letter was dropped")) {
      setDropped(null);
      reload();
    }
  };
  return html`
    ${error && !dropped && html`<${Problem} error=${error} />`}
    <${ChosenBar} picks=${picks} actions=${[["Retry", () => begin("Retry", "deadletter_retry", false)], ["Drop", () => begin("Drop", "deadletter_drop", true), true]]} />
    <${Part}
      id="letters"
      title="Dead letters"
      part=${part}
      none="There are no dead letters."
      head=${[html`<${PickAll} picks=${picks} label="letters" />`, "Key", "Verb", "Refused with", "#Attempts", "Writer", "When", ""]}
      row=${(letter) => html`<tr key=${letter.namespace + letter.number}>
        <td class="pick"><${Pick} picks=${picks} row=${letter} label=${letter.key} /></td>
        <td class="lead"><${Key} namespace=${letter.namespace} name=${letter.key} /></td>
        <td><code>${letter.verb}</code></td>
        <td><div><code>${letter.error_code}</code> <span class="block muted">${letter.message}</span></div></td>
        <td class="num">${number(letter.attempts)}</td>
        <td class="key">${writerOf(letter)}</td>
        <td><${When} at=${letter.at} now=${now} /></td>
        <td class="buttons">
          <button type="button" class="quiet" onClick=${() => setLooked(letter)}>Look<${Of} name=${letter.key} /></button>
          <button type="button" disabled=${busy} onClick=${() => retry(letter)}>Retry<${Of} name=${letter.key} /></button>
          <button type="button" class="danger" onClick=${() => (clear(), setDropped(letter))}>Drop<${Of} name=${letter.key} /></button>
        </td>
      </tr>`}
    />
    ${looked &&
    html`<${Confirm} title=${`Letter ${looked.number}`} action="Retry" harmless onClose=${() => setLooked(null)} onYes=${() => (retry(looked), setLooked(null))}>
      <${Request} key=${looked.number} letter=${looked} />
    <//>`}
    ${bulk &&
    html`<${Bulk}
      ...${bulk}
      key=${bulk.action}
      noun="letter"
      nameOf=${letterName}
      act=${(letter) => call("admin", "", bulk.verb, about(letter))}
      onClose=${() => setBulk(null)}
      done=${reload}
    >
      <p>${bulk.destroys ? "These writes are then lost." : "Each write is sent again as its writer sent it. One that succeeds leaves the inbox."}</p>
    <//>`}
    ${dropped &&
    html`<${Confirm} title="Drop this letter?" action="Drop" error=${error} busy=${busy} onYes=${drop} onClose=${() => setDropped(null)}>
      <p>The write of <code>${dropped.key}</code> by <code>${writerOf(dropped)}</code> is then lost.</p>
    <//>`}
  `;
}

function Trash({ part, now, reload }) {
  const [run, error, busy] = useAction();
  const restore = async (row) => {
    const [family, owner] = split(row.namespace);
    if (await run(() => call(family, owner, "restore", { key: row.key }), `${row.key} was restored`)) reload();
  };
  return html`
    ${error && html`<${Problem} error=${error} />`}
    <${Part}
      id="trash"
      title="Trash"
      part=${part}
      none="Nothing was removed that can be restored."
      head=${["Key", "Removed", "Writer", "Purpose", "When", "Purged", ""]}
      row=${(row) => html`<tr key=${row.namespace + row.key}>
        <td class="lead"><${Key} namespace=${row.namespace} name=${row.key} /></td>
        <td><${Tag} tone=${row.op === "deleted" ? "bad" : ""}>${row.op}<//></td>
        <td class="key">${row.by}</td>
        <td>${row.purpose || html`<span class="muted">–</span>`}</td>
        <td><${When} at=${row.at} now=${now} /></td>
        <td><${Countdown} at=${row.purged_at} skew=${now - Date.now()} /></td>
        <td class="buttons"><button type="button" disabled=${busy} onClick=${() => restore(row)}>Restore<${Of} name=${row.key} /></button></td>
      </tr>`}
    />
  `;
}

const Locks = ({ part, now }) => html`<${Part}
  id="locks"
  title="Locks"
  part=${part}
  none="No lock is held."
  head=${["Lock", "Holder", "#Token", "#Waiters", "Since", "Lease ends"]}
  row=${(lock) => html`<tr key=${lock.namespace + lock.key}>
    <td class="lead"><${Key} namespace=${lock.namespace} name=${lock.key} /></td>
    <td class="key">${lock.holder}</td>
    <td class="num">${lock.token}</td>
    <td class="num">${number(lock.waiters)}</td>
    <td><${When} at=${lock.since} now=${now} /></td>
    <td><${Countdown} at=${lock.expires_at} skew=${now - Date.now()} /></td>
  </tr>`}
/>`;

const Expiring = ({ part, now }) => html`<${Part}
  id="expiring"
  title="Expires soon"
  part=${part}
  none="No entry expires in this time."
  head=${["Key", "Purpose", "Writer", "#Version", "Expires"]}
  row=${(row) => html`<tr key=${row.namespace + row.key}>
    <td class="lead"><${Key} namespace=${row.namespace} name=${row.key} /></td>
    <td>${row.purpose || html`<span class="muted">–</span>`}</td>
    <td class="key">${row.last_writer}</td>
    <td class="num">${row.version}</td>
    <td><${Countdown} at=${row.expires_at} skew=${now - Date.now()} /></td>
  </tr>`}
/>`;

/** Requests that took long. Only where some belong to traces is there a column for them. */
const Slow = ({ part, now, traced = part.rows.some((one) => one.trace_id) }) => html`<${Part}
  id="slow"
  title="Slow requests"
  part=${part}
  none="No request was slow since the start."
  head=${["Verb", "Caller", "Key", "#Took", "Result", ...(traced ? ["Trace"] : []), "When"]}
  row=${(one) => html`<tr key=${one.number} data-row tabindex="-1">
    <td class="lead"><code>${one.verb}</code></td>
    <td class="key">${one.plugin}</td>
    <td class="key">${one.key || "–"}</td>
    <td class="num">${number(Math.round(one.milliseconds))} ms</td>
    <td>${one.error_code ? html`<code>${one.error_code}</code>` : html`<span class="muted">ok</span>`}</td>
    ${traced && html`<td class="key">${one.trace_id || "–"}</td>`}
    <td><${When} at=${one.at} now=${now} /></td>
  </tr>`}
/>`;

const TABS = [
  ["letters", "Dead letters", Letters],
  ["locks", "Locks", Locks],
  ["expiring", "Expires soon", Expiring],
  ["trash", "Trash", Trash],
  ["slow", "Slow requests", Slow],
];

/** The tabs, each with how much is in it. The arrow keys go from one to the next. */
function Tabs({ doc, tab, choose }) {
  const pressed = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const names = TABS.map(([name]) => name);
    const next = names[(names.indexOf(tab) + step + names.length) % names.length];
    choose(next);
    document.getElementById(`tab-${next}`).focus();
  };
  return html`<div class="tabs" role="tablist" aria-label="What waits" onKeyDown=${pressed}>
    ${TABS.map(([name, label]) => {
      const { rows, more, refused } = doc[name];
      const tone = rows.length && name === "letters" ? "bad" : "";
      return html`<button key=${name} type="button" role="tab" id=${`tab-${name}`} aria-controls="tab-panel" aria-selected=${tab === name} tabindex=${tab === name ? "0" : "-1"} onClick=${() => choose(name)}>
        ${label} <${Tag} tone=${tone}>${refused ? "–" : `${number(rows.length)}${more ? "+" : ""}`}<//>
      </button>`;
    })}
  </div>`;
}

export default function Inbox({ doc, href, go, reload }) {
  const asked = new URL(href, location.href).searchParams.get("tab");
  const [tab, setTab] = useState(TABS.some(([name]) => name === asked) ? asked : "letters");
  useEvery(15_000, () => !document.querySelector("dialog[open]") && reload());
  const here = withQuery(href, { tab: tab === "letters" ? null : tab });
  const choose = (name) => {
    setTab(name);
    history.replaceState(null, "", withQuery(href, { tab: name === "letters" ? null : name }));
  };
  const names = [["", "all namespaces"], ...doc.namespaces.map((one) => [one, one])];
  const [, , Shown] = TABS.find(([name]) => name === tab);
  return html`
    <div class="row filters">
      <${Choose} label="Namespace" name="namespace" value=${doc.namespace} options=${names} href=${here} go=${go} first />
      ${tab === "expiring" &&
      html`<${Choose} label="Expires within" name="within" value=${doc.within === 3600 ? "" : String(doc.within)} options=${SPANS} href=${here} go=${go} />`}
    </div>
    <${Tabs} doc=${doc} tab=${tab} choose=${choose} />
    <div id="tab-panel" class="panel" role="tabpanel" aria-labelledby=${`tab-${tab}`}>
      <${Shown} key=${tab} part=${doc[tab]} now=${doc.now} reload=${reload} />
    </div>
  `;
}
