/** The view of tools: as everyone or as one principal sees them, with their schemas, their rules, and a run of each. */

import { Costs } from "./costs.js";
import { emptyState, h, problem, section } from "./element.js";
import { jsonDetails } from "./json_text.js";
import { Choice, ListView } from "./list_view.js";
import { count, printable, printableLines } from "./text.js";
import { ToolRun } from "./tool_run.js";

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

export class ToolsView extends ListView {
  #server = new Choice("Server", "All servers", () => this.draw());
  #as = new Choice("As whom", "As everyone", () => this.#load());
  #hidden = h("input", { type: "checkbox", onchange: () => this.draw() });
  #costs;
  #loading = false;
  #refusal = null;
  #run = null;
  /** As whom the tools were asked for last. */
  #asked = "";
  /** The last request for the tool in the panel; null when it was answered. */
  #request = null;

  constructor(app) {
    super(app, {
      name: "tools",
      label: "Tools",
      one: "tool",
      columns: COLUMNS,
      key: (row) => row.name,
      texts: (row) => [row.name, row.title, row.server, row.line],
    });
    const hidden = h("label", { class: "check" }, this.#hidden, "Hidden ones too");
    this.addControls(this.#server.element, this.#as.element, hidden);
    this.#costs = new Costs(app.session);
    this.grid.frame.before(this.#costs.element);
  }

  show(key, query) {
    if (this.app.store.catalogIsOld) this.#load();
    if (query?.has("server")) {
      this.#server.update((this.app.store.state?.servers ?? []).map((row) => row.server));
      this.#server.element.value = query.get("server");
    }
    if (key !== this.open) this.#leave();
    super.show(key);
  }

  /** Asks for the tools again after they have changed. */
  refresh() {
    if (this.app.store.catalogIsOld) this.#load();
  }

  async #load() {
    if (this.#loading) return;
    this.#loading = true;
    const { store, session } = this.app;
    store.catalogIsOld = false;
    const as = this.#as.value;
    const before = this.#asked;
    this.#asked = as;
    try {
      store.takeCatalog(await session.request("GET", as ? `tools?${new URLSearchParams({ as })}` : "tools"));
      this.#refusal = null;
      this.#costs.draw();
    } catch (refusal) {
      this.#refusal = refusal;
      store.touch("catalog");
    } finally {
      this.#loading = false;
    }
    if (this.#as.value !== as) this.#load();
    // What the panel shows stays when the list has changed: it may have a result, or what somebody has typed. A tool that
    // could not be run gets its form as soon as it can.
    else if (store.state && this.open !== null && (before !== as || (this.#run === null && this.#request === null && this.#isListed(this.open)))) this.drawPanel(this.open, true);
  }

  #isListed(name) {
    return this.rows().some((tool) => tool.name === name && !tool.hidden_by);
  }

  rows() {
    return this.app.store.catalog?.tools ?? [];
  }

  passes(row) {
    return (!this.#server.value || row.server === this.#server.value) && (this.#hidden.checked || !row.hidden_by);
  }

  draw() {
    const { store } = this.app;
    this.#server.update((store.state?.servers ?? []).map((row) => row.server));
    const principals = (store.catalog?.principals ?? []).filter((name) => typeof name === "string" && name !== "");
    this.#as.update(principals.map((name) => [name, `As ${name}`]));
    this.#as.element.hidden = principals.length === 0;
    this.#costs.element.hidden = !this.app.isAdmin;
    this.#hidden.parentElement.hidden = !this.rows().some((row) => row.hidden_by);
    super.draw();
  }

  empty() {
    if (this.#refusal) return problem(this.#refusal);
    if (this.app.store.catalog === null) return emptyState("Asking for the tools…");
    return emptyState("There is no tool.", "Look under ", h("a", { href: "#servers" }, "Servers"), " whether they are ready, and under ", h("a", { href: "#rules" }, "Rules"), " what is hidden.");
  }

  #leave() {
    this.#run?.cancel();
    this.#run = this.#request = null;
  }

  async drawPanel(name, opened) {
    if (!opened || this.#run?.isRunning) return;
    const row = this.rows().find((tool) => tool.name === name);
    const as = this.#as.value;
    this.panel.show(name, row ? row.server || OWN : "Tool", h("p", { class: "quiet" }, "Asking for the tool…"));
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
      content = contentOf(tool, row, this.#run);
    } catch (refusal) {
      content = [problem(refusal)];
    }
    if (this.#request !== request) return;
    this.#request = null;
    if (this.open === name) this.panel.show(name, server, content);
  }
}

function contentOf({ definition: listed, original, rules }, row, run) {
  const definition = listed ?? original ?? {};
  const text = definition.description;
  const annotations = definition.annotations ?? {};
  return [
    definition.title && definition.title !== definition.name ? h("p", { class: "tool-title" }, printable(definition.title, 200)) : null,
    h("p", { class: "marks" }, marksOf({ read_only: annotations.readOnlyHint, destructive: annotations.destructiveHint, hidden_by: listed === null }), annotationsOf(annotations)),
    typeof text === "string" && text ? h("p", { class: "description" }, printableLines(text, 6000)) : h("p", { class: "quiet" }, "It has no description."),
    listed === null ? h("p", { class: "hidden-by" }, "Hidden: ", h("code", {}, printable(row?.hidden_by ?? "by a rule", 300))) : run.element,
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
