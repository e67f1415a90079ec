// The items of a table in a grid. Where the policy wants a reason to look, attributes other than keys are masked.

import { html, useState } from "../vendor/preact.js";
import { Choose, Filters, More, Rows, useAction } from "../parts/actions.js";
import { Bulk, ChosenBar, Pick, PickAll, useChosen } from "../parts/bulk.js";
import { Field, wrong } from "../parts/edit.js";
import { bytes, withQuery } from "../parts/format.js";
import { parsed } from "../parts/json.js";
import { call, requestId, WRITER, write } from "../parts/net.js";
import { announce, Countdown, Dialog, Problem, Section, Tag } from "../parts/ui.js";

export const title = (doc) => (doc ? doc.table.table : "Table");
export const crumbs = (doc) =>
  doc && [
    ["Tables", "/ui/tables"],
    [doc.plugin, `/ui/tables/${encodeURIComponent(doc.plugin)}`],
  ];

const MOST_COLUMNS = 8;

export function itemHref(doc, item) {
  const { table, plugin } = doc;
  const root = `/ui/tables/${encodeURIComponent(plugin)}/${encodeURIComponent(table.table)}/item`;
  const key = { partition: String(item.key[table.partition_key.name]) };
  if (table.sort_key) key.sort = String(item.key[table.sort_key.name]);
  return withQuery(root, key);
}

const itemName = (item) => Object.values(item.key).join(" · ");

function columns(items) {
  const seen = new Map();
  for (const item of items) for (const name of Object.keys(item.attributes)) seen.set(name, (seen.get(name) || 0) + 1);
  return [...seen.keys()].sort((a, b) => seen.get(b) - seen.get(a) || (a < b ? -1 : 1));
}

const Attribute = ({ held }) => {
  if (held?.text != null) return html`<span class="key" title=${held.text}>${held.text}</span>`;
  return held
    ? html`<span><span class="dots" aria-hidden="true" title=${`${held.kind}, ${bytes(held.bytes)}`}>••••</span><span class="unseen">hidden</span> <span class="muted hint">${held.kind}</span></span>`
    : html`<span class="muted">–</span>`;
};

function Grid({ doc, picks }) {
  const { table, items } = doc;
  const names = columns(items);
  const shown = names.slice(0, MOST_COLUMNS);
  const keys = [table.partition_key.name, table.sort_key?.name].filter(Boolean);
  return html`<${Rows}><table class="grid">
      <thead><tr>
        ${picks && html`<th class="pick"><${PickAll} picks=${picks} label="items" /></th>`}
        ${keys.map((name) => html`<th key=${name}>${name} <span class="tag">key</span></th>`)}
        ${shown.map((name) => html`<th key=${`a-${name}`}>${name}</th>`)}
        <th class="num">Version</th><th>Expires</th>
      </tr></thead>
      <tbody>
        ${items.map(
          (item) => html`<tr key=${itemHref(doc, item)}>
            ${picks && html`<td class="pick"><${Pick} picks=${picks} row=${item} label=${itemName(item)} /></td>`}
            ${keys.map(
              (name, position) => html`<td class=${position === 0 ? "key lead" : "key"} key=${name}>
                ${position === 0 ? html`<a data-row href=${itemHref(doc, item)}>${String(item.key[name])}</a>` : String(item.key[name])}
              </td>`,
            )}
            ${shown.map((name) => html`<td class=${doc.revealed ? "" : "minor"} key=${`a-${name}`}><${Attribute} held=${item.attributes[name]} /></td>`)}
            <td class="num">${item.version}</td>
            <td><${Countdown} at=${item.expires_at} skew=${doc.now - Date.now()} /></td>
          </tr>`,
        )}
      </tbody>
    </table><//>
    ${names.length > shown.length && html`<p class="muted">${names.length - shown.length} more attributes are not shown as columns; open an item to see them.</p>`}`;
}

const BLANKS = { string: '""', number: "0", binary: '""' };

/** A new item, which must not exist. The text begins with the key that the table wants. */
function NewItem({ doc, onClose, done }) {
  const { table, plugin } = doc;
  const keys = [table.partition_key, table.sort_key].filter(Boolean);
  const blank = `{\n${keys.map(({ name, type }) => `  ${JSON.stringify(name)}: ${BLANKS[type]}`).join(",\n")}\n}`;
  const [text, setText] = useState(blank);
  const [run, error, busy] = useAction();
  const check = (typed) => {
    const item = parsed(typed);
    if (item === null || typeof item !== "object" || Array.isArray(item)) return "An item is an object.";
    const missing = keys.find(({ name }) => !(name in item));
    return missing ? `${missing.name} is part of the key, and is missing.` : null;
  };
  const save = async (event) => {
    event.preventDefault();
    const fields = { table: table.table, expected_version: 0, request_id: requestId(), last_writer: WRITER };
    const stored = await run(async () => {
      try {
        return await write("table", plugin, "put_item", "item", text, fields);
      } catch (refusal) {
        throw refusal.code === "VERSION_CONFLICT" ? new Error("There is an item with this key already.") : refusal;
      }
    });
    if (!stored) return;
    announce(`Version ${stored.version} was saved`);
    onClose();
    const item = parsed(text);
    done({ key: Object.fromEntries(keys.map(({ name }) => [name, item[name]])) });
  };
  const unfit = !text.trim() || wrong(text) || check(text);
  return html`<${Dialog} wide title=${`New item in ${table.table}`} onClose=${onClose}>
    <form onSubmit=${save}>
      <${Field} text=${text} setText=${setText} label="Item as JSON" check=${check} />
      ${error && html`<${Problem} error=${error} />`}
      <div class="actions">
        <button type="submit" class="primary" disabled=${busy || unfit}>Save</button>
        <button type="button" onClick=${onClose}>Cancel</button>
      </div>
    </form>
  <//>`;
}

/** The fields that name an item in a call. */
const keyFields = ({ table }, { key }) => ({
  table: table.table,
  partition_key: key[table.partition_key.name],
  ...(table.sort_key ? { sort_key: key[table.sort_key.name] } : {}),
});

export default function Table({ doc, href, go, reload }) {
  const [adding, setAdding] = useState(false);
  const [doomed, setDoomed] = useState(null);
  const chosen = useChosen(doc.items, (item) => itemHref(doc, item));
  const picks = doc.may.includes("delete_item") ? chosen : null;
  const { table, asked: filters, items } = doc;
  const indexes = [["", "no index"], ...table.indexes.map((one) => [one.name, `${one.name} (${one.key.name})`])];
  const fields = filters.index
    ? [["value", "Value in the index", ""]]
    : [["partition", `Partition (${table.partition_key.name})`, "all partitions"]];
  return html`
    <${Filters}
      fields=${[...fields, ["filter", "Condition", '{"score": {"gt": 10}}']]}
      values=${filters}
      href=${href}
      go=${go}
      reset=${{ cursor: null, index: filters.index || null }}
    >
      ${table.indexes.length > 0 &&
      html`<${Choose} label="Index" name="index" value=${filters.index} options=${indexes} href=${href} go=${go} reset=${{ cursor: null, partition: null, value: null }} />`}
    <//>
    <${Section}
      id="items"
      title="Items"
      aside=${html`<span class="state">${!doc.revealed && html`<span class="muted">values are masked; open an item to reveal it</span>`}
        ${doc.may.includes("put_item") && html`<button type="button" onClick=${() => setAdding(true)}>New item</button>`}</span>`}
    >
      ${picks && html`<${ChosenBar} picks=${picks} actions=${[["Delete", () => setDoomed(picks.chosen), true]]} />`}
      ${items.length ? html`<${Grid} doc=${doc} picks=${picks} />` : html`<p class="muted">${filters.index && !filters.value ? "Give the value to look up in the index." : Object.keys(filters).length ? "No item matches." : "The table is empty."}</p>`}
      <${More} href=${href} next=${doc.cursor} />
    <//>
    <${Section} id="about" title="About this table">
      <dl class="facts">
        <div><dt>Partition key</dt><dd class="key">${table.partition_key.name} (${table.partition_key.type})</dd></div>
        <div><dt>Sort key</dt><dd class="key">${table.sort_key ? `${table.sort_key.name} (${table.sort_key.type})` : "–"}</dd></div>
        <div><dt>Expires by</dt><dd class="key">${table.ttl_attribute || "–"}</dd></div>
        <div><dt>Images in the journal</dt><dd>${table.stream}</dd></div>
        <div><dt>Indexes</dt><dd>
          ${table.indexes.map((one) => html`<span key=${one.name}><span class="key">${one.name}</span> on <span class="key">${one.key.name}</span> <${Tag} tone=${one.state === "ready" ? "good" : "warn"}>${one.state}<//> </span>`)}
          ${!table.indexes.length && "none"}
        </dd></div>
      </dl>
    <//>
    ${doomed &&
    html`<${Bulk}
      action="Delete"
      noun="item"
      destroys
      rows=${doomed}
      nameOf=${itemName}
      act=${(item) => call("table", doc.plugin, "delete_item", { ...keyFields(doc, item), expected_version: item.version, request_id: requestId(), last_writer: WRITER })}
      onClose=${() => setDoomed(null)}
      done=${reload}
    >
      <p>An item that was written since this list was read is left as it is.</p>
    <//>`}
    ${adding && html`<${NewItem} doc=${doc} onClose=${() => setAdding(false)} done=${(item) => go(itemHref(doc, item))} />`}
  `;
}
