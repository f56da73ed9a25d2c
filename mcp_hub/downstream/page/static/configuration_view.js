/** The view of the configuration: its files, what is wrong in them, and what the last reloads changed. */

import { announce, confirm } from "./dialog.js";
import { advice, button, chapter, emptyState, fill, h, moment, problem } from "./element.js";
import { count, printable } from "./text.js";

const MAX_ROWS = 200;
const TONES = { error: "bad", warning: "warn", advice: "quiet" };

export class ConfigurationView {
  #app;
  #content = h("div", {});
  #drawn = "";

  constructor(app) {
    this.#app = app;
    this.filter = null;
    this.element = h("div", { class: "view page-view configuration-view", tabindex: 0, role: "region", "aria-label": "Configuration" }, this.#content);
  }

  show() {
    this.draw();
  }

  draw() {
    const { state } = this.#app.store;
    if (state === null) return;
    const { files = [], findings = [], reloads = [], problem: refused = null, waiting = null } = state.configuration ?? {};
    const said = JSON.stringify([files, findings, reloads, refused, waiting, state.generation]);
    if (said === this.#drawn) return;
    this.#drawn = said;
    fill(
      this.#content,
      refused ? chapter("Not in force", problem({ message: refused, cure: "The hub goes on with the configuration before. Correct the file: it is read again when you save it." })) : null,
      waiting ? chapter("Changed, not read", problem({ message: waiting, cure: "Look at the files: what is in them now starts when you read them again." }), this.#rereading()) : null,
      chapter("Files", filesOf(files, state)),
      chapter(findings.length ? `Findings (${count(findings.length)})` : "Findings", findingsOf(findings)),
      chapter("Reloads", reloadsOf(reloads)),
    );
  }

  #rereading() {
    if (!this.#app.isAdmin) return null;
    return button("Read the files again…", async () => {
      const done = await confirm({
        title: "Read the files again?",
        text: "A server may have changed them. The hub starts what they say now.",
        verb: "Read again",
        dangerous: true,
        act: () => this.#app.session.request("POST", "actions/reload", {}),
      });
      if (done) announce(done.text ?? "The files were read again.");
    });
  }

  escape() {
    return false;
  }
}

function filesOf(files, { generation }) {
  const list = files.slice(0, MAX_ROWS).map((file) => h("li", {}, h("code", {}, printable(typeof file === "string" ? file : (file.path ?? JSON.stringify(file)), 400))));
  const none = h("p", { class: "quiet" }, "The hub was started without a file.");
  return [list.length ? h("ul", { class: "plain-list" }, list) : none, h("p", { class: "quiet" }, `Read ${generation === 1 ? "once" : `${count(generation)} times`} since the start.`)];
}

function findingsOf(findings) {
  if (!findings.length) return emptyState("Nothing is wrong.", "What ", h("code", {}, "mcp-hub check"), " would say of these files appears here.");
  const items = findings.slice(0, MAX_ROWS).map((finding) =>
    h(
      "li",
      { class: `finding ${TONES[finding.level] ?? "quiet"}` },
      h("p", {}, h("span", { class: `state ${TONES[finding.level] ?? "quiet"}` }, printable(finding.level ?? "", 40)), " ", finding.code ? h("code", { class: "code" }, printable(finding.code, 40)) : null, " ", printable(finding.text ?? "", 1000)),
      finding.cure ? advice(finding.cure) : null,
      finding.where ? h("p", {}, h("code", { class: "where" }, printable(finding.where, 300))) : null,
    ),
  );
  return h("ul", { class: "findings" }, items);
}

function reloadsOf(reloads) {
  if (!reloads.length) return emptyState("The files have not changed since the start.", "A saved file is read again by itself; what changed is told here.");
  const items = reloads.slice(0, MAX_ROWS).map((reload) =>
    h(
      "li",
      { class: "reload" },
      h("p", {}, moment(reload.time), " ", h("span", { class: "quiet" }, `generation ${count(reload.generation)}`)),
      reload.problem ? h("p", { class: "failed" }, "Not taken: ", printable(reload.problem, 1000)) : null,
      reload.changed?.length ? h("ul", { class: "plain-list" }, reload.changed.slice(0, MAX_ROWS).map((sentence) => h("li", {}, printable(sentence, 400)))) : null,
    ),
  );
  return h("ol", { class: "reloads" }, items);
}
