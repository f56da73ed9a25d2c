/** One run of a tool from the page: its form, its progress, the questions it asks, and what came of it. */

import { button, facts, fill, h, outward, section } from "./element.js";
import { announce, confirm } from "./dialog.js";
import { STREAM, eventsOf } from "./event_stream.js";
import { drawProgress, errorView, resultView } from "./result_view.js";
import { SchemaForm, Unreadable } from "./schema_form.js";
import { Refusal } from "./session.js";
import { duration, isWebAddress, printable } from "./text.js";

const LOST = { code: null, message: "The connection ended before the result came.", cure: "The call may have been executed. Look under Calls what became of it." };

export class ToolRun {
  #session;
  #tool;
  #as;
  #form;
  #start;
  #stop;
  #progress = h("div", { class: "progress" });
  #questions = h("div", { class: "questions", role: "status" });
  #outcome = h("div", { class: "outcome", role: "status" });
  #running = null;

  /** `definition` is the tool as it is listed; `as` the principal as whom it is run, or null. */
  constructor(session, definition, as) {
    this.#session = session;
    this.#tool = definition;
    this.#as = as;
    this.#form = new SchemaForm(definition.inputSchema);
    this.#start = button("Run", () => this.#begin(), { class: "primary" });
    this.#stop = button("Cancel the call", () => this.cancel());
    this.#stop.hidden = true;
    this.element = section(
      "Run",
      this.#form.element,
      h("div", { class: "buttons start" }, this.#start, this.#stop, this.#progress),
      this.#questions,
      this.#outcome,
    );
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.#begin();
    });
  }

  get isRunning() {
    return this.#running !== null;
  }

  /** Cancels the call that runs, if one does. */
  cancel() {
    this.#running?.abort();
  }

  async #begin() {
    if (this.#running !== null) return;
    let given;
    try {
      given = this.#form.read();
    } catch (error) {
      this.#form.blame(error);
      return;
    }
    if (this.#tool.annotations?.destructiveHint === true) {
      const sure = await confirm({
        title: "Run a tool that may destroy something?",
        text: `The server says that ${printable(this.#tool.name)} may delete or overwrite what is there.`,
        verb: "Run it",
        dangerous: true,
        act: () => true,
      });
      if (!sure) return;
    }
    await this.#run(given);
  }

  async #run(given) {
    this.#running = new AbortController();
    this.#start.disabled = true;
    this.#stop.hidden = false;
    fill(this.#outcome);
    fill(this.#progress, h("progress", { "aria-label": "Running" }));
    const began = performance.now();
    let shown = errorView(LOST);
    try {
      shown = (await this.#follow(given)) ?? shown;
    } catch (error) {
      if (error.name === "AbortError") shown = h("p", {}, "The call was cancelled.");
      else if (error instanceof Refusal) shown = errorView(error);
    } finally {
      this.#running = null;
      this.#start.disabled = false;
      this.#stop.hidden = true;
      fill(this.#progress);
      fill(this.#questions);
    }
    fill(this.#outcome, h("p", { class: "took" }, `After ${duration(performance.now() - began)}`), shown);
  }

  async #follow(given) {
    const body = { tool: this.#tool.name, arguments: given, ...(this.#as ? { as: this.#as } : {}) };
    const response = await this.#session.response("POST", "run", { body, signal: this.#running.signal, headers: STREAM });
    for await (const { event, data } of eventsOf(response)) {
      if (event === "progress") drawProgress(this.#progress, data);
      else if (event === "question") this.#ask(data);
      else if (event === "result") return resultView(data);
      else if (event === "error") return errorView(data);
    }
    return null;
  }

  #ask(question) {
    const element = new Question(question, async (action, content) => {
      await this.#session.request("POST", "answer", { id: question.id, action, content });
      element.remove();
    }).element;
    this.#questions.append(element);
    element.querySelector("input, textarea, select, button")?.focus();
    announce("The tool asks a question.");
  }
}

/** A question of a server: a form made of its schema, or an address to open. */
class Question {
  /** `answer(action, content)` gives the answer to the hub. */
  constructor({ mode, server, message, schema, url }, answer) {
    const form = mode === "url" ? null : new SchemaForm(schema, "Answer");
    const error = h("div", { role: "alert" });
    const say = (action) => async () => {
      try {
        const content = action === "accept" && form !== null ? form.read() : undefined;
        await answer(action, content);
      } catch (refusal) {
        if (refusal instanceof Unreadable) form.blame(refusal);
        else fill(error, errorView(refusal));
      }
    };
    this.element = h(
      "section",
      { class: "question", "aria-label": "A question" },
      h("h4", {}, server ? `${printable(server, 80)} asks` : "The hub asks"),
      h("p", { class: "said" }, message ?? ""),
      form?.element ?? addressOf(url),
      h(
        "div",
        { class: "buttons start" },
        button(mode === "url" ? "I have done it" : "Answer", say("accept"), { class: "primary" }),
        button("Decline", say("decline")),
        button("Cancel", say("cancel")),
      ),
      error,
    );
  }
}

function addressOf(url) {
  const text = typeof url === "string" ? url : "";
  const host = isWebAddress(text) ? new URL(text).host : null;
  return facts([
    ["Host", host ?? "none: this is not a web address, it cannot be opened here"],
    ["Address", outward(text)],
  ]);
}
