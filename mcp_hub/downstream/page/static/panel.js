/** The panel beside a list: what is known of the row that is open. */

import { button, fill, h } from "./element.js";

export class Panel {
  #content = h("div", { class: "panel-content" });
  #title = h("h2", { class: "panel-title", tabindex: -1 });
  #kind = h("p", { class: "panel-kind" });
  #onclose;

  /** `onclose()` is called when the panel is closed by its button or Escape. */
  constructor(label, onclose) {
    this.#onclose = onclose;
    const close = button("Close", () => this.#onclose(), { class: "close", "aria-label": `Close ${label}` });
    this.element = h(
      "section",
      { class: "panel", "aria-label": label, tabindex: 0 },
      h("header", { class: "panel-head" }, h("div", {}, this.#kind, this.#title), close),
      this.#content,
    );
    this.element.hidden = true;
  }

  get isOpen() {
    return !this.element.hidden;
  }

  /** Shows content under a title; a kind, such as the server, stands above it. */
  show(title, kind, ...content) {
    const wasOpen = this.isOpen;
    this.element.hidden = false;
    fill(this.#title, title);
    fill(this.#kind, kind);
    fill(this.#content, ...content);
    if (!wasOpen) this.element.scrollTop = 0;
  }

  /** Puts the keyboard at the title. */
  focus() {
    this.#title.focus({ preventScroll: true });
    this.element.scrollTop = 0;
  }

  hide() {
    this.element.hidden = true;
    fill(this.#content);
  }
}
