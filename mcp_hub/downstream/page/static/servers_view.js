/** The view of servers: how each of them is, what it costs, and what can be done. */

import { announce, confirm, show } from "./dialog.js";
import { button, emptyState, facts, h, moment, outward, problem, section } from "./element.js";
import { ListView, Part } from "./list_view.js";
import { count, duration, isWebAddress, printable, printableLines, short } from "./text.js";

const TONES = { ready: "good", idle: "quiet", connecting: "busy", failing: "warn", "backing off": "bad", stopped: "quiet", disabled: "quiet" };

/** Gives a cell a state: a mark and a word. */
function drawState(cell, state) {
  if (cell.firstChild?.className === `state ${TONES[state] ?? "quiet"}` && cell.textContent === state) return;
  cell.replaceChildren(h("span", { class: `state ${TONES[state] ?? "quiet"}` }, printable(state, 40)));
}

/** Returns what of a server wants somebody's attention, in few words. */
function notes(server) {
  const found = [];
  if (server.sign_in) found.push("sign in");
  if (server.flagged) found.push(`${count(server.flagged)} flagged`);
  if (server.pins) found.push("pins differ");
  return found;
}

function drawNote(cell, server) {
  const marks = notes(server).map((text) => h("span", { class: "mark" }, text));
  const text = server.problem ? h("span", { class: server.switched_off ? "quiet" : "trouble" }, server.code ? h("code", {}, printable(server.code, 40)) : null, " ", printable(server.problem, 200)) : null;
  cell.replaceChildren(...marks, ...(text ? [text] : []));
}

const COLUMNS = [
  { key: "name", title: "Server", sortable: true, value: (row) => row.server },
  { key: "status", title: "State", sortable: true, value: (row) => row.state, render: (cell, row) => drawState(cell, row.state) },
  { key: "transport", title: "Transport", value: (row) => row.transport },
  { key: "tools number", title: "Tools", sortable: true, downFirst: true, value: (row) => row.tools, render: (cell, row) => (cell.textContent = count(row.tools)) },
  { key: "tokens number", title: "Tokens", sortable: true, downFirst: true, value: (row) => row.tokens, render: (cell, row) => (cell.textContent = short(row.tokens)) },
  { key: "calls number", title: "Calls", sortable: true, downFirst: true, value: (row) => row.calls, render: (cell, row) => (cell.textContent = count(row.calls)) },
  { key: "errors number", title: "Errors", sortable: true, downFirst: true, value: (row) => row.errors, render: (cell, row) => { cell.textContent = count(row.errors); cell.classList.toggle("some", row.errors > 0); } },
  { key: "p50 number", title: "p50", sortable: true, downFirst: true, value: (row) => row.p50_ms, render: (cell, row) => (cell.textContent = duration(row.p50_ms)) },
  { key: "p95 number", title: "p95", sortable: true, downFirst: true, value: (row) => row.p95_ms, render: (cell, row) => (cell.textContent = duration(row.p95_ms)) },
  { key: "note", title: "Note", value: (row) => row.problem, render: drawNote },
];

export class ServersView extends ListView {
  #actions = new Part();
  #facts = new Part();
  #words = new Part();

  constructor(app) {
    super(app, {
      name: "servers",
      label: "Servers",
      one: "server",
      columns: COLUMNS,
      key: (row) => row.server,
      texts: (row) => [row.server, row.state, row.transport, row.problem, row.code, ...notes(row)],
    });
  }

  rows() {
    return this.app.store.state?.servers ?? [];
  }

  empty() {
    return emptyState("No server is configured.", "Find one with ", h("code", {}, "mcp-hub search"), ", add it with ", h("code", {}, "mcp-hub add"), ". It appears here without a restart.");
  }

  drawPanel(id) {
    const row = this.rows().find((one) => one.server === id);
    this.detail(`servers/${encodeURIComponent(id)}`, row?.version, (server) => {
      this.#actions.draw([id, server.state, server.disabled, server.sign_in, server.pins, this.app.isAdmin], () => this.#buttons(server));
      this.#facts.draw({ ...server, stderr: null }, () => factsOf(server));
      this.#words.draw(server.stderr, () => wordsOf(server.stderr ?? []));
      return [id, this.#actions.element, toolsAndCallsOf(id), this.#facts.element, this.#words.element];
    });
  }

  #buttons(server) {
    if (!this.app.isAdmin) return null;
    const { server: id, disabled } = server;
    const buttons = [];
    if (server.sign_in) buttons.push(button("Sign in…", () => this.#signIn(id), { class: "primary" }));
    if (disabled) buttons.push(button("Enable…", () => this.#act("enable", id, "Enable", "It is started, and its tools are listed again.")));
    else {
      buttons.push(button("Restart…", () => this.#act("restart", id, "Restart", "Calls that it is running fail with a code; later ones wait until it is back.")));
      buttons.push(button("Disable…", () => this.#act("disable", id, "Disable", "Its tools disappear for every client until it is enabled or the configuration is read again.")));
    }
    if (server.pins?.length) buttons.push(button("Pin as it is…", () => this.#act("pin", id, "Pin", "What it lists now becomes what is trusted. Read the differences below first.")));
    return h("div", { class: "buttons start" }, buttons);
  }

  async #act(action, id, verb, text) {
    const done = await confirm({
      title: `${verb} ${printable(id, 80)}?`,
      text,
      verb,
      dangerous: action === "disable",
      act: () => this.app.session.request("POST", `actions/${action}`, { server: id }),
    });
    if (done) announce(done.text ?? `${verb}: done.`);
  }

  async #signIn(id) {
    const done = await confirm({
      title: `Sign in to ${printable(id, 80)}?`,
      text: "The hub asks the server where its sign-in is. You open that address yourself.",
      verb: "Get the address",
      act: () => this.app.session.request("POST", "actions/sign_in", { server: id }),
    });
    if (!done) return;
    const host = isWebAddress(done.url) ? new URL(done.url).host : "an address that cannot be opened";
    const dialog = show(`Sign in at ${printable(host, 120)}`, [h("p", { class: "address" }, outward(String(done.url ?? "")))], [button("Close", () => dialog.close(), { class: "primary" })]);
  }
}

function toolsAndCallsOf(id) {
  const server = encodeURIComponent(id);
  return h("p", {}, h("a", { href: `#tools?server=${server}` }, "Its tools"), " · ", h("a", { href: `#calls?server=${server}` }, "Its calls"));
}

function factsOf(server) {
  return [
    server.problem && server.switched_off ? h("p", {}, printable(server.problem, 200)) : null,
    server.problem && !server.switched_off ? problem({ code: server.code, message: server.problem, cure: server.cure }) : null,
    facts([
      ["State", h("span", {}, printable(server.state, 40), server.since ? [" since ", moment(server.since)] : null)],
      ["Transport", server.transport],
      ["Era", server.era],
      ["Process", server.pid ? String(server.pid) : null],
      ["Restarts", count(server.restarts ?? 0)],
      ["Tools", server.tools ? `${count(server.tools)}, about ${count(server.tokens)} tokens in a model's context` : "none"],
      ["Calls", server.calls ? `${count(server.calls)}, ${count(server.errors)} of them failed` : "none"],
      ["Duration", typeof server.p50_ms === "number" ? `half below ${duration(server.p50_ms)}, 95 % below ${duration(server.p95_ms)}` : null],
    ]),
    server.flagged?.length ? section("Flagged by the screen", listOf(server.flagged)) : null,
    server.pins?.length ? section("Differs from its pins", listOf(server.pins)) : null,
  ];
}

function listOf(entries) {
  return h("ul", { class: "plain-list" }, entries.slice(0, 200).map((entry) => h("li", {}, typeof entry === "string" ? printable(entry, 600) : printable(sentence(entry), 600))));
}

function sentence(entry) {
  return Object.values(entry ?? {}).filter((value) => typeof value === "string" || typeof value === "number").join(" · ");
}

function wordsOf(lines) {
  const text = lines.slice(-50).map((line) => printableLines(line, 500)).join("\n");
  const block = text ? h("pre", { class: "stderr", tabindex: 0, role: "region", "aria-label": "Last lines of stderr" }, text) : h("p", { class: "quiet" }, "It has written nothing to stderr.");
  return section("Last lines of stderr", block);
}
