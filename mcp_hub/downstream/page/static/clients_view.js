/** The view of clients: who is connected, and what each of them has declared. */

import { announce, confirm } from "./dialog.js";
import { button, emptyState, facts, h, moment, section } from "./element.js";
import { jsonBlock } from "./json_text.js";
import { Part } from "./list_view.js";
import { count, printable } from "./text.js";
import { WindowView } from "./window_view.js";

const COLUMNS = [
  { key: "name", title: "Client", sortable: true, value: (row) => row.name || "unnamed" },
  { key: "version", title: "Version", value: (row) => row.version },
  { key: "principal", title: "Principal", sortable: true, value: (row) => row.principal || "anonymous" },
  { key: "transport", title: "Transport", sortable: true, value: (row) => row.transport },
  { key: "era", title: "Era", value: (row) => row.era },
  { key: "calls number", title: "Calls", sortable: true, downFirst: true, value: (row) => row.calls, render: (cell, row) => (cell.textContent = count(row.calls)) },
  { key: "since", title: "Since", sortable: true, value: (row) => row.since, render: (cell, row) => cell.replaceChildren(moment(row.since)) },
];

export class ClientsView extends WindowView {
  #content = new Part();

  constructor(app) {
    super(app, { name: "clients", label: "Clients", one: "client", path: "clients", list: "clients", columns: COLUMNS, key: (row) => row.id });
  }

  none() {
    return emptyState("No client is connected.", "Put the hub into your clients with ", h("code", {}, "mcp-hub setup"), ", or point one at the address of this page with the path /mcp.");
  }

  drawPanel(id) {
    this.detail(`clients/${encodeURIComponent(id)}`, this.app.store.versions.clients, (client) => {
      this.#content.draw([client, this.app.isAdmin], () => this.#contentOf(client));
      return [client.name || "unnamed", this.#content.element];
    });
  }

  #contentOf(client) {
    const declared = client.declared && Object.keys(client.declared).length ? jsonBlock(client.declared, "Capabilities") : h("p", { class: "quiet" }, "It has declared no capabilities: no tool can ask it anything.");
    return [
      this.app.isAdmin ? h("div", { class: "buttons start" }, button("End its session…", () => this.#end(client))) : null,
      facts([
        ["Name", client.name],
        ["Version", client.version],
        ["Principal", client.principal || "anonymous"],
        ["Transport", client.transport],
        ["Era", client.era],
        ["Since", moment(client.since)],
        ["Calls", count(client.calls)],
        ["Listed", client.listed],
      ]),
      section("What it declared", declared),
    ];
  }

  async #end(client) {
    const done = await confirm({
      title: `End the session of ${printable(client.name || "this client", 80)}?`,
      text: "Calls that it is running are cancelled. It may connect again.",
      verb: "End it",
      dangerous: true,
      act: () => this.app.session.request("POST", "actions/end_session", { client: client.id }),
    });
    if (done) announce(done.text ?? "The session has ended.");
  }
}
