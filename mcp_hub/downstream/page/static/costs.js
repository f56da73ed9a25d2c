/** What the tools cost in a model's context, in each way of listing them, and how many nobody has called. */

import { fill, h, problem } from "./element.js";
import { count, counted, printable } from "./text.js";

/** Makes the costs: asked for when they are opened, and again when the tools have changed meanwhile. */
export class Costs {
  #session;
  #content = h("div", { class: "costs-content" });
  element = h("details", { class: "costs", ontoggle: () => this.draw() }, h("summary", {}, "What they cost a model"), this.#content);

  constructor(session) {
    this.#session = session;
  }

  /** Draws them anew if they are open. */
  async draw() {
    if (!this.element.open) return;
    try {
      fill(this.#content, contentOf(await this.#session.request("GET", "costs")));
    } catch (refusal) {
      fill(this.#content, problem(refusal));
    }
  }
}

function contentOf({ client, ways, groups, servers, never_called: never }) {
  const others = `Any client that is not known is listed ${counted(client.tools, "tool")}, ${counted(client.tokens, "token")}: ${client.why}.`;
  return [
    h("p", {}, printable(others)),
    tableOf("Way of listing", ways, (one) => [one.way, breakEven(one)]),
    tableOf("Group", groups, (one) => [one.group, one.active ? "on" : "off"]),
    tableOf("Server", servers, (one) => [one.server, one.never_called ? `${count(one.never_called)} never called` : ""]),
    never.tools ? h("p", {}, `${counted(never.tools, "tool")} with ${counted(never.tokens, "token")} nobody has called since the hub began.`) : null,
  ];
}

function breakEven({ each_search: each, searches }) {
  if (each === undefined) return "";
  return `for the hub's own tools, and at most ${count(each)} a search: less than all ${searches ? `up to ${counted(searches, "search", "searches")} in a conversation` : "only without a search"}`;
}

/** Makes a table of rows with tools and tokens; `said(row)` returns its name and a remark. */
function tableOf(title, rows, said) {
  if (!rows.length) return null;
  const head = h("tr", {}, h("th", { scope: "col" }, title), ["Tools", "Tokens"].map((name) => h("th", { scope: "col", class: "number" }, name)), h("td", {}));
  const body = rows.slice(0, 200).map((row) => {
    const [name, remark] = said(row);
    return h("tr", {}, h("th", { scope: "row" }, printable(name, 120)), h("td", { class: "number" }, count(row.tools)), h("td", { class: "number" }, count(row.tokens)), h("td", {}, remark));
  });
  return h("table", { class: "steps" }, h("thead", {}, head), h("tbody", {}, body));
}
