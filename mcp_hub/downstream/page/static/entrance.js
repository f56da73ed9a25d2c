/** What is shown before there is a session: how to get in. */

import { fill, h, problem } from "./element.js";

export class Entrance {
  #enter;
  #error = h("div", { role: "alert" });
  #token = h("input", { type: "password", id: "token", autocomplete: "off", spellcheck: "false" });

  /** `enter(credential)` opens a session; it throws a Refusal. */
  constructor(enter) {
    this.#enter = enter;
    const form = h(
      "form",
      {
        onsubmit: (event) => {
          event.preventDefault();
          this.tryWith({ token: this.#token.value });
        },
      },
      h("label", { for: "token" }, "Your token"),
      h("div", { class: "buttons start" }, this.#token, h("button", { type: "submit", class: "primary" }, "Enter")),
    );
    this.element = h(
      "main",
      { class: "entrance", id: "entrance" },
      h("h1", {}, "mcp-hub"),
      h("p", {}, "This page shows a hub at work: its servers, tools and calls."),
      this.#error,
      h("h2", {}, "On this machine"),
      h("p", {}, "Run this in a terminal. It opens the page with a link that is good once, for a minute."),
      h("pre", { class: "command" }, "mcp-hub open"),
      h("details", {}, h("summary", {}, "With a token, on a network"), h("p", {}, "Enter the token your clients use. You see what they see."), form),
    );
  }

  /** Tries a credential and says what is wrong with it. */
  async tryWith(credential) {
    fill(this.#error);
    try {
      await this.#enter(credential);
      this.#token.value = "";
    } catch (refusal) {
      this.say(refusal);
    }
  }

  /** Says why there is no session. */
  say(refusal) {
    fill(this.#error, refusal ? problem(refusal) : null);
  }
}
