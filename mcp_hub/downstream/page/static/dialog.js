/** Dialogs that ask once before an action, and say what became of it. */

import { button, fill, h, problem } from "./element.js";

/**
 * Asks before `act()` runs. Resolves to what it returned, or to undefined when it was not confirmed. What `act` throws
 * is shown in the dialog, with its code and cure, and can be tried again.
 */
export function confirm({ title, text, verb, act, dangerous = false }) {
  return new Promise((resolve) => {
    const error = h("div", { "aria-live": "assertive" });
    let found;
    const go = button(verb, async () => {
      go.disabled = true;
      fill(error);
      try {
        found = { value: await act() };
        dialog.close();
      } catch (refusal) {
        fill(error, problem(refusal));
        go.disabled = false;
        go.focus();
      }
    }, { class: dangerous ? "primary dangerous" : "primary" });
    const dialog = show(title, [h("p", {}, text), error], [button("Cancel", () => dialog.close()), go]);
    dialog.addEventListener("close", () => resolve(found?.value));
  });
}

/** Opens a dialog with a title, content and buttons, and removes it when it is closed. Returns it. */
export function show(title, content, buttons) {
  const dialog = h(
    "dialog",
    { "aria-labelledby": "dialog-title" },
    h("h2", { id: "dialog-title" }, title),
    ...content,
    h("div", { class: "buttons" }, buttons),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

const REPEATED = 3000;
let said = "";
let saidAt = 0;

/** Says a sentence in the corner of the page and to screen readers; the same one not again within three seconds. */
export function announce(sentence) {
  if (sentence === said && Date.now() - saidAt < REPEATED) return;
  said = sentence;
  saidAt = Date.now();
  const place = document.getElementById("announcements");
  fill(place, h("p", {}, sentence));
  setTimeout(() => {
    if (saidAt + 6000 <= Date.now()) fill(place);
  }, 6050);
}
