/** The calls that wait for a person, above every view: what each of them is about to do, and the answers. */

import { announce } from "./dialog.js";
import { button, fill, h, moment, problem } from "./element.js";
import { printable, printableLines } from "./text.js";

const VERBS = { once: "Allow once", "for this session": "Allow for this session", no: "No" };

export class Confirmations {
  #app;
  /** Ids of those that wait, with their elements: an element stays while its call waits, and keeps the keyboard. */
  #shown = new Map();
  element = h("section", { class: "confirmations", "aria-label": "Waiting for your answer", hidden: true });

  constructor(app) {
    this.#app = app;
  }

  /** Draws what has changed. */
  draw() {
    const waiting = this.#app.store.state?.confirmations ?? [];
    const ids = new Set(waiting.map((row) => row.id));
    for (const [id, element] of this.#shown) {
      if (ids.has(id)) continue;
      this.#remove(element);
      this.#shown.delete(id);
    }
    for (const row of waiting) {
      if (this.#shown.has(row.id)) continue;
      const element = this.#elementOf(row);
      this.#shown.set(row.id, element);
      this.element.append(element);
      announce(`A call of ${printable(row.name, 80)} waits for your answer.`);
    }
    this.element.hidden = this.#shown.size === 0;
  }

  #remove(element) {
    const had = element.contains(document.activeElement);
    const next = element.nextElementSibling ?? element.previousElementSibling;
    element.remove();
    if (had) (next?.querySelector("button") ?? document.querySelector("[role=tab][aria-selected=true]"))?.focus();
  }

  #elementOf({ id, name, server, tool, client, principal, within, run, since, choices, setting, arguments: given }) {
    const error = h("div", { role: "alert" });
    let busy = false;
    const say = (answer) => async () => {
      if (busy) return; // a button that is disabled would lose the keyboard
      busy = true;
      try {
        await this.#app.session.request("POST", "confirm", { id, answer });
        this.#app.store.answered(id);
      } catch (refusal) {
        fill(error, problem(refusal));
        busy = false;
      }
    };
    const buttons = choices.map((answer) => button(VERBS[answer] ?? answer, say(answer), answer === "once" ? { class: "primary" } : {}));
    const who = [client ?? "A client", principal].filter(Boolean).map((text) => printable(text, 80)).join(", ");
    const program = run ? h("a", { href: `#calls/${encodeURIComponent(run)}` }, "a program") : printable(within ?? "", 40);
    return h(
      "article",
      { class: "confirmation" },
      h("h2", {}, `May ${printable(name, 120)} be called?`),
      h("p", {}, `${who}: ${printable(tool, 120)} of ${printable(server, 120)}`, within ? [", by ", program] : null, ", since ", moment(since), "."),
      h("pre", { class: "text", tabindex: 0, role: "region", "aria-label": "Arguments" }, printableLines(given)),
      h("div", { class: "buttons start" }, buttons, h("span", { class: "quiet" }, "Asked because of ", h("code", {}, printable(setting, 120)))),
      error,
    );
  }
}
