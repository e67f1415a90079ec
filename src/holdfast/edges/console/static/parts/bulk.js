// Acting on many rows at once: choosing them, the question before it, and what became of each.

import { html, useRef, useState } from "../vendor/preact.js";
import { number } from "./format.js";
import { announce, Dialog } from "./ui.js";

const AT_ONCE = 6;
const SHOWN = 20;

/** The rows that are chosen. One that is no longer among `rows` is not chosen any more. */
export function useChosen(rows, nameOf) {
  const [names, setNames] = useState(new Set());
  const chosen = rows.filter((row) => names.has(nameOf(row)));
  const set = (row, on) => {
    const changed = new Set(names);
    if (on) changed.add(nameOf(row));
    else changed.delete(nameOf(row));
    setNames(changed);
  };
  return {
    chosen,
    nameOf,
    has: (row) => names.has(nameOf(row)),
    set,
    all: rows.length > 0 && chosen.length === rows.length,
    setAll: (on) => setNames(new Set(on ? rows.map(nameOf) : [])),
  };
}

export const Pick = ({ picks, row, label }) =>
  html`<input type="checkbox" class="pick" aria-label=${`Choose ${label}`} checked=${picks.has(row)} onChange=${(event) => picks.set(row, event.target.checked)} />`;

export const PickAll = ({ picks, label }) =>
  html`<input type="checkbox" class="pick" aria-label=${`Choose all ${label}`} checked=${picks.all} onChange=${(event) => picks.setAll(event.target.checked)} />`;

/** What can be done with the chosen rows. `actions` are pairs of a name and a function; those that destroy are red. */
export function ChosenBar({ picks, actions }) {
  if (!picks.chosen.length) return null;
  return html`<div class="chosen" role="region" aria-label="Chosen rows">
    <strong>${number(picks.chosen.length)} chosen</strong>
    ${actions.map(([name, act, destroys]) => html`<button key=${name} type="button" class=${destroys ? "danger" : ""} onClick=${act}>${name}</button>`)}
    ${!picks.all && html`<button type="button" class="quiet" onClick=${() => picks.setAll(true)}>Choose all</button>`}
    <button type="button" class="quiet" onClick=${() => picks.setAll(false)}>Choose none</button>
  </div>`;
}

/** Why a row was left as it is. */
const reason = (error) =>
  error.code === "VERSION_CONFLICT" && error.problem?.current !== undefined
    ? error.problem.current
      ? `changed since this list was read: it has version ${error.problem.current.version} now`
      : "gone already"
    : error.message;

/**
 * Do something with each of the rows, a few at a time. `act` does it with one, `nameOf` names it for people, and `noun`
 * is what one of them is. Where that destroys something, the action and the number of rows have to be typed before.
 */
export function Bulk({ action, noun: one, rows, nameOf, act, destroys, onClose, done, children }) {
  const [typed, setTyped] = useState("");
  const [state, setState] = useState(null);
  const stopped = useRef(false);
  const noun = rows.length === 1 ? one : `${one}s`;
  const words = `${action.toLowerCase()} ${rows.length}`;

  async function run(event) {
    event.preventDefault();
    stopped.current = false;
    const refused = [];
    let count = 0;
    const left = [...rows];
    const work = async () => {
      while (left.length && !stopped.current) {
        const row = left.shift();
        try {
          await act(row);
        } catch (error) {
          refused.push([nameOf(row), reason(error)]);
        }
        count += 1;
        setState({ count, refused: [...refused], over: false });
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    announce(`${action}: ${number(count - refused.length)} of ${number(rows.length)} ${noun}`);
    setState({ count, refused, over: true });
    done();
    if (!refused.length && !stopped.current) onClose();
  }

  const busy = state && !state.over;
  return html`<${Dialog} title=${`${action} ${number(rows.length)} ${noun}`} onClose=${() => ((stopped.current = true), onClose())}>
    <form onSubmit=${run}>
      ${children}
      ${!state &&
      html`<ul class="listed">
        ${rows.slice(0, 5).map((row, position) => html`<li key=${position} class="key">${nameOf(row)}</li>`)}
        ${rows.length > 5 && html`<li class="muted">and ${number(rows.length - 5)} more</li>`}
      </ul>`}
      ${!state &&
      destroys &&
      html`<label for="typed">Type <code>${words}</code> to confirm</label>
        <input id="typed" class="mono" autocomplete="off" spellcheck="false" value=${typed} onInput=${(event) => setTyped(event.target.value)} />`}
      ${state &&
      html`<progress max=${rows.length} value=${state.count} aria-label="Rows that are done"></progress>
        <p role="status">${number(state.count - state.refused.length)} of ${number(rows.length)} ${noun} ${state.over ? "are done" : "so far"}.</p>`}
      ${state?.refused.length > 0 &&
      html`<div class="problem" role="alert">
        <p><strong>${number(state.refused.length)} ${state.refused.length === 1 ? "was" : "were"} refused, and left as they are:</strong></p>
        <ul class="listed">
          ${state.refused.slice(0, SHOWN).map(([name, why], position) => html`<li key=${position}><span class="key">${name}</span>: ${why}</li>`)}
          ${state.refused.length > SHOWN && html`<li>and ${number(state.refused.length - SHOWN)} more</li>`}
        </ul>
      </div>`}
      <div class="actions">
        ${!state && html`<button type="submit" class=${destroys ? "danger" : "primary"} disabled=${destroys && typed.trim() !== words}>${action} ${number(rows.length)} ${noun}</button>`}
        ${busy && html`<button type="button" onClick=${() => (stopped.current = true)}>Stop</button>`}
        ${!busy && html`<button type="button" onClick=${onClose}>${state ? "Close" : "Cancel"}</button>`}
      </div>
    </form>
  <//>`;
}
