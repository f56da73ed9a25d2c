/** The calls that wait for a person, above every view: what each of them is about to do, and the answers. */

import { announce } from "./dialog.js";
import { button, fill, h, moment, problem } from "./element.js";
import { count, printable } from "./text.js";

const VERBS = { once: "Allow once", "for this session": "Allow for this session, whatever its arguments", no: "No" };
/** Characters of one piece of arguments: only the pieces in sight are laid out. */
const PIECE = 4000;
/** An escape, or the number of a long run, in arguments as the hub shows them. */
const ESCAPE = /\\(?:\{[^}]*\}|.)/g;

export class Confirmations {
  #app;
  /** Ids of those that wait, with their elements: an element stays while its call waits, and keeps the keyboard. */
  #shown = new Map();
  element = h("section", { class: "confirmations", "aria-label": "Waiting for your answer", hidden: true, onpointerleave: () => this.#close() });

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
    if (this.#shown.size === 0) this.#close();
    this.element.hidden = this.#shown.size === 0;
  }

  /** Takes a call away. While the pointer is here its place stays empty, so that no other call comes under the pointer. */
  #remove(element) {
    const had = element.contains(document.activeElement);
    const next = element.nextElementSibling ?? element.previousElementSibling;
    if (this.element.matches(":hover")) {
      const gap = h("div", { class: "gap" });
      gap.style.height = `${element.offsetHeight}px`;
      element.replaceWith(gap);
    } else element.remove();
    if (had) (next?.matches("article") ? next : document.querySelector("[role=tab][aria-selected=true]"))?.focus();
  }

  /** Closes the gaps. */
  #close() {
    for (const gap of this.element.querySelectorAll(".gap")) gap.remove();
  }

  #elementOf({ id, name, asks, client, principal, within, run, since, choices, setting, size, digest, arguments: given }) {
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
    const block = h("pre", { class: "text", tabindex: 0, role: "region", "aria-label": "Arguments" });
    const names = h("span", {}, asks ?? "…");
    if (given === null) this.#ask(id, names, block, buttons, error);
    else block.append(...piecesOf(given));
    const who = [client ?? "A client", principal].filter(Boolean).map((text) => printable(text, 80)).join(", ");
    const program = run ? h("a", { href: `#calls/${encodeURIComponent(run)}` }, "a program") : printable(within ?? "", 40);
    return h(
      "article",
      { class: "confirmation", tabindex: -1 },
      h("h2", {}, `May ${printable(name, 120)} be called?`),
      h("p", {}, `${who}: `, names, within ? [", by ", program] : null, ", since ", moment(since), "."),
      block,
      given === null ? h("p", { class: "quiet" }, `${count(size)} bytes. SHA-256: `, h("code", {}, digest)) : null,
      h("div", { class: "buttons start" }, buttons, h("span", { class: "quiet" }, "Asked because of ", h("code", {}, printable(setting, 120)))),
      error,
    );
  }

  /** Asks for names and arguments that are too long for an event. Nobody can allow the call before they are there. */
  async #ask(id, names, block, buttons, error) {
    const allowing = buttons.filter((one) => one.textContent !== VERBS.no);
    for (const one of allowing) one.hidden = true;
    try {
      const { asks, arguments: given } = await this.#app.session.request("GET", `confirmations/${encodeURIComponent(id)}`);
      names.textContent = asks;
      block.append(...piecesOf(given));
      for (const one of allowing) one.hidden = false;
    } catch (refusal) {
      fill(error, problem(refusal));
    }
  }
}

/** Returns elements with the arguments as the hub shows them, all of them. A line ends behind each `\n`, which stays visible. */
function piecesOf(given) {
  const lines = given.replace(ESCAPE, (escape) => (escape === "\\n" ? "\\n\n    " : escape));
  const pieces = [];
  for (let at = 0; at < lines.length; at += PIECE) {
    const piece = h("div", { class: "piece" });
    piece.textContent = lines.slice(at, at + PIECE);
    pieces.push(piece);
  }
  return pieces;
}
