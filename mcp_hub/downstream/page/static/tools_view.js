/** The view of tools: as everyone or as one principal sees them, with their schemas, their rules, and a run of each. */

import { Costs } from "./costs.js";
import { emptyState, h, problem, section } from "./element.js";
import { jsonDetails } from "./json_text.js";
import { Choice } from "./list_view.js";
import { count, printable, printableLines } from "./text.js";
import { ToolRun } from "./tool_run.js";
import { WindowView } from "./window_view.js";

/** What stands for the server of the hub's own tools. */
const OWN = "the hub";
/** What of the rules of a tool changes nothing. */
const NOTHING = new Set(["passes it", "does not concern it", "not reached"]);

/** Returns what is known of a tool before it runs: what it may do, and whether a rule hides it. */
function marksOf(tool) {
  const marks = [];
  if (tool.hidden_by) marks.push(h("span", { class: "mark hidden-mark" }, "hidden"));
  if (tool.read_only === true) marks.push(h("span", { class: "mark calm" }, "reads"));
  if (tool.destructive === true) marks.push(h("span", { class: "mark grave" }, "destructive"));
  return marks;
}

const COLUMNS = [
  { key: "name", title: "Tool", sortable: true, value: (row) => row.name },
  { key: "server", title: "Server", sortable: true, value: (row) => row.server || OWN },
  { key: "line", title: "What it does", value: (row) => row.line || row.title },
  { key: "marks", title: "Kind", render: (cell, row) => cell.replaceChildren(...marksOf(row)) },
  { key: "tokens number", title: "Tokens", sortable: true, downFirst: true, value: (row) => row.tokens, render: (cell, row) => (cell.textContent = count(row.tokens)) },
];

export class ToolsView extends WindowView {
  #server = new Choice("Server", "All servers", () => this.draw());
  #as = new Choice("As whom", "As everyone", () => this.draw());
  #hidden = h("input", { type: "checkbox", onchange: () => this.draw() });
  #costs;
  #run = null;
  /** As whom the tools were asked for last. */
  #asked = "";
  /** The last request for the tool in the panel; null when it was answered. */
  #request = null;

  constructor(app) {
    super(app, { name: "tools", label: "Tools", one: "tool", path: "tools", list: "catalog", columns: COLUMNS, key: (row) => row.name });
    const hidden = h("label", { class: "check" }, this.#hidden, "Hidden ones too");
    hidden.hidden = this.#as.element.hidden = true;
    this.addControls(this.#server.element, this.#as.element, hidden);
    this.#costs = new Costs(app.session);
    this.grid.frame.before(this.#costs.element);
  }

  show(key, query) {
    if (query?.has("server")) {
      this.#server.update((this.app.store.state?.servers ?? []).map((row) => row.server));
      this.#server.element.value = query.get("server");
    }
    if (key !== this.open) this.#leave();
    super.show(key);
  }

  query() {
    const [server, as] = [this.#server.value, this.#as.value];
    return { ...(server && { server }), ...(as && { as }), ...(!this.#hidden.checked && { listed: "1" }) };
  }

  took({ principals, hidden, own }, hasChanged) {
    this.remark = own ? `, ${count(own)} of them the hub's own` : "";
    this.#as.update(principals.filter((name) => name !== "").map((name) => [name, `As ${name}`]));
    this.#as.element.hidden = principals.length === 0;
    this.#hidden.parentElement.hidden = hidden === 0;
    if (hasChanged) this.#costs.draw();
    const before = this.#asked;
    this.#asked = this.#as.value;
    // What the panel shows stays when the list has changed: it may have a result, or what somebody has typed. A tool that
    // could not be run gets its form as soon as it can.
    if (this.open !== null && (before !== this.#asked || (hasChanged && this.#run === null && this.#request === null))) this.drawPanel(this.open, true);
  }

  draw() {
    this.#server.update((this.app.store.state?.servers ?? []).map((row) => row.server));
    this.#costs.element.hidden = !this.app.isAdmin;
    super.draw();
  }

  none() {
    return emptyState("There is no tool.", "Look under ", h("a", { href: "#servers" }, "Servers"), " whether they are ready, and under ", h("a", { href: "#rules" }, "Rules"), " what is hidden.");
  }

  #leave() {
    this.#run?.cancel();
    this.#run = this.#request = null;
  }

  async drawPanel(name, opened) {
    if (!opened || this.#run?.isRunning) return;
    const as = this.#as.value;
    this.panel.show(name, "Tool", h("p", { class: "quiet" }, "Asking for the tool…"));
    let content;
    let server = "Tool";
    const request = {};
    this.#request = request;
    try {
      const query = as ? `?${new URLSearchParams({ as })}` : "";
      const tool = await this.app.session.request("GET", `tools/${encodeURIComponent(name)}${query}`);
      if (this.#request !== request) return;
      server = tool.server || OWN;
      this.#run = tool.definition ? new ToolRun(this.app.session, tool.definition, as || null) : null;
      content = contentOf(tool, this.#run);
    } catch (refusal) {
      content = [problem(refusal)];
    }
    if (this.#request !== request) return;
    this.#request = null;
    if (this.open === name) this.panel.show(name, server, content);
  }
}

function contentOf({ definition: listed, original, rules, hidden_by: hiddenBy }, run) {
  const definition = listed ?? original ?? {};
  const text = definition.description;
  const annotations = definition.annotations ?? {};
  return [
    definition.title && definition.title !== definition.name ? h("p", { class: "tool-title" }, printable(definition.title, 200)) : null,
    h("p", { class: "marks" }, marksOf({ read_only: annotations.readOnlyHint, destructive: annotations.destructiveHint, hidden_by: listed === null }), annotationsOf(annotations)),
    typeof text === "string" && text ? h("p", { class: "description" }, printableLines(text, 6000)) : h("p", { class: "quiet" }, "It has no description."),
    listed === null ? h("p", { class: "hidden-by" }, "Hidden: ", h("code", {}, printable(hiddenBy ?? "by a rule", 300))) : run.element,
    section("What the rules do to it", rulesOf(rules ?? [])),
    section(
      "Definition",
      jsonDetails("Input schema", definition.inputSchema),
      definition.outputSchema ? jsonDetails("Output schema", definition.outputSchema) : null,
      listed ? jsonDetails("As clients are told", listed) : null,
      original ? jsonDetails("As the server lists it", original) : null,
    ),
  ];
}

function annotationsOf(annotations) {
  const known = { idempotentHint: ["repeatable", "not repeatable"], openWorldHint: ["reaches outside", "stays inside"] };
  return Object.entries(known)
    .filter(([name]) => typeof annotations?.[name] === "boolean")
    .map(([name, [yes, no]]) => h("span", { class: "mark" }, annotations[name] ? yes : no));
}

function rulesOf(rules) {
  if (!rules.length) return h("p", { class: "quiet" }, "None changes or limits it.");
  return h("table", { class: "steps" }, h("tbody", {}, rules.slice(0, 100).map((rule) => h("tr", { class: NOTHING.has(rule.did) ? "passed" : null }, h("th", { scope: "row" }, rule.policy), h("td", {}, rule.did)))));
}
