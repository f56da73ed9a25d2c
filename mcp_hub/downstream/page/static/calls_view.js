/** The view of calls as they come: filtered, held still, and each with what every rule did. */

import { button, emptyState, facts, fill, h, moment, problem, section, setText } from "./element.js";
import { jsonBlock } from "./json_text.js";
import { Choice, ListView, Part } from "./list_view.js";
import { counted, count, duration, printable, timeOf } from "./text.js";

const VERDICTS = [["ok", "ok"], ["tool_error", "tool error"], ["error", "error"], ["refused", "refused"], ["cancelled", "cancelled"]];
const TONES = { running: "busy", ok: "good", tool_error: "warn", error: "bad", refused: "refused", cancelled: "quiet" };
const WORDS = Object.fromEntries(VERDICTS);
const PAGE = 200;

function verdictOf(row) {
  return h("span", { class: `state ${TONES[row.verdict] ?? "quiet"}` }, WORDS[row.verdict] ?? printable(row.verdict ?? "", 40));
}

const COLUMNS = [
  { key: "time", title: "Time", render: drawTime },
  { key: "status", title: "Verdict", render: (cell, row) => cell.replaceChildren(verdictOf(row)) },
  { key: "name", title: "Name", value: (row) => row.name || row.method, render: drawName },
  { key: "server", title: "Server", value: (row) => row.server },
  { key: "client", title: "Client", value: (row) => [row.client, row.principal].filter(Boolean).join(" · ") },
  { key: "took number", title: "Took", render: (cell, row) => (cell.textContent = duration(row.duration_ms)) },
  { key: "note", title: "Why", value: (row) => [...new Set([row.code, row.policy, row.reason])].filter(Boolean).join(" · ") },
];

function drawName(cell, row) {
  setText(cell, row.name || row.method);
  cell.classList.toggle("inner", Boolean(row.run));
}

/**
 * Returns calls, newest first, with those of a program below its run, in their order. A program that still runs has no
 * record yet; `waiting` are the runs that wait for a person.
 */
function grouped(calls, waiting) {
  const programs = new Map(waiting.map((id) => [id, []]));
  for (const row of calls) {
    if (row.run && !programs.has(row.run)) programs.set(row.run, []);
    if (row.run) programs.get(row.run).push(row);
  }
  if (programs.size === 0) return calls;
  for (const inner of programs.values()) inner.reverse();
  const ended = new Map(calls.filter((row) => programs.has(row.id)).map((row) => [row.id, row]));
  const found = [];
  const place = (id) => {
    const inner = programs.get(id);
    if (inner === undefined) return;
    programs.delete(id);
    found.push(ended.get(id) ?? runOf(id, inner[0]), ...inner);
  };
  for (const id of waiting) if (!ended.has(id)) place(id);
  for (const row of calls) {
    if (row.run || ended.has(row.id)) place(row.run ?? row.id);
    else found.push(row);
  }
  return found;
}

/** Makes the row of a program that runs; `first` is a call of it. */
function runOf(id, first) {
  return { id, name: "hub_run", verdict: "running", time: first?.time ?? new Date().toISOString(), client: first?.client, principal: first?.principal };
}

function drawTime(cell, row) {
  const { short, full } = timeOf(row.time);
  cell.textContent = short;
  cell.title = full;
}

export class CallsView extends ListView {
  #verdict = new Choice("Verdict", "Any verdict", () => this.draw());
  #server = new Choice("Server", "All servers", () => this.draw());
  #principal = new Choice("Principal", "All principals", () => this.draw());
  #pause = button("Pause", () => this.#toggle(), { "aria-pressed": "false", class: "pause" });
  #notice = h("div", { class: "notice" });
  #older = button("Load older calls", () => this.#load(), { class: "link older" });
  #held = null;
  #rows = [];
  #from = null;
  #waiting = "";
  #loading = false;
  #begun = false;
  #program = new Part();
  /** The run that is open and has not ended. */
  #running = null;

  constructor(app) {
    super(app, {
      name: "calls",
      label: "Calls",
      one: "call",
      columns: COLUMNS,
      key: (row) => row.id,
      texts: (row) => [row.name, row.method, row.tool, row.server, row.client, row.principal, row.verdict, row.code, row.policy, row.reason, row.run, row.id],
    });
    this.#verdict.update(VERDICTS);
    this.addControls(this.#verdict.element, this.#server.element, this.#principal.element, this.#pause);
    this.grid.frame.before(this.#notice);
    this.grid.frame.after(this.#older);
  }

  show(key, query) {
    if (!this.#begun) {
      this.#begun = true;
      this.#load();
    }
    this.#choices();
    if (query?.has("server")) this.#server.element.value = query.get("server");
    super.show(key);
  }

  rows() {
    const calls = this.#held ?? this.app.store.calls;
    const waiting = this.#runsThatWait();
    const now = [calls.length, calls.at(-1)?.id, ...waiting].join();
    if (this.#from !== calls || this.#waiting !== now) {
      this.#from = calls;
      this.#waiting = now;
      this.#rows = grouped([...calls].reverse(), waiting);
    }
    return this.#rows;
  }

  passes(row) {
    const verdict = this.#verdict.value;
    const server = this.#server.value;
    const principal = this.#principal.value;
    return (!verdict || row.verdict === verdict) && (!server || row.server === server) && (!principal || (row.principal || "anonymous") === principal);
  }

  draw() {
    this.#choices();
    const { store } = this.app;
    const fresh = this.#held === null ? 0 : store.calls.length - this.#held.length;
    this.#pause.textContent = this.#held === null ? "Pause" : fresh > 0 ? `Go on, ${count(fresh)} new` : "Go on";
    fill(this.#notice, store.dropped ? h("p", {}, `${counted(store.dropped, "call")} came faster than could be shown. Records have them all.`) : null);
    this.#older.hidden = !store.mayHaveOlder || this.#held !== null;
    super.draw();
  }

  empty() {
    if (this.#loading) return emptyState("Asking for the last calls…");
    return emptyState("No call yet since somebody watches.", "Calls of your clients appear here as they end. Run a tool under ", h("a", { href: "#tools" }, "Tools"), " to see one.");
  }

  /** Returns the ids of the programs a call of which waits for a person. */
  #runsThatWait() {
    return [...new Set((this.app.store.state?.confirmations ?? []).map((one) => one.run).filter(Boolean))];
  }

  #choices() {
    const { store } = this.app;
    this.#server.update((store.state?.servers ?? []).map((row) => row.server));
    const principals = new Set(store.calls.map((row) => row.principal || "anonymous"));
    this.#principal.update([...principals].sort());
    this.#principal.element.hidden = principals.size < 2;
  }

  #toggle() {
    this.#held = this.#held === null ? [...this.app.store.calls] : null;
    this.#pause.setAttribute("aria-pressed", String(this.#held !== null));
    this.draw();
  }

  async #load() {
    if (this.#loading) return;
    this.#loading = true;
    const oldest = this.app.store.calls[0]?.id;
    const query = new URLSearchParams({ limit: PAGE, ...(oldest ? { before: oldest } : {}) });
    try {
      this.app.store.takeOlder(await this.app.session.request("GET", `calls?${query}`));
    } catch (refusal) {
      fill(this.#notice, problem(refusal));
    } finally {
      this.#loading = false;
      this.app.store.touch("calls");
    }
  }

  async drawPanel(id, opened) {
    const { calls } = this.app.store;
    const row = calls.find((one) => one.id === id);
    const inner = calls.filter((one) => one.run === id);
    this.#program.draw(inner, () => programOf(inner));
    if (!opened && (row === undefined || this.#running !== id)) return;
    const runs = row === undefined && (inner.length > 0 || this.#runsThatWait().includes(id));
    this.#running = runs ? id : null;
    if (runs) {
      this.panel.show("hub_run", "A program that runs", h("p", { class: "quiet" }, "Its record comes when it has ended."), this.#program.element);
      return;
    }
    this.panel.show(row?.name ?? "Call", row?.server ?? "Call", h("p", { class: "quiet" }, "Asking for the record…"));
    let content;
    let call = row ?? {};
    try {
      const found = await this.app.session.request("GET", `calls/${encodeURIComponent(id)}`);
      call = found.call;
      content = recordOf(found, inner.length ? this.#program.element : null);
    } catch (refusal) {
      content = [row ? factsOf(row) : null, problem(refusal)];
    }
    if (this.open === id) this.panel.show(call.name ?? row?.name ?? "Call", call.upstream ?? row?.server ?? "Call", content);
  }
}

function factsOf(call) {
  const time = call.time ? moment(call.time) : null;
  const took = typeof call.duration_ms === "number" ? `, took ${duration(call.duration_ms)}` : null;
  return facts([
    ["Verdict", call.verdict ? verdictOf(call) : null],
    ["Code", call.code === null || call.code === undefined ? null : h("code", {}, String(call.code))],
    ["Policy", call.policy],
    ["Why", call.error ?? call.reason],
    ["Time", time ? h("span", {}, time, took) : null],
  ]);
}

function detailsOf(call) {
  return facts([
    ["Method", call.method],
    ["Client", call.client],
    ["Caller", call.caller],
    ["Era", call.era],
    ["Attempts", typeof call.attempts === "number" ? count(call.attempts) : null],
    ["Size", typeof call.bytes_out === "number" ? `${count(call.bytes_in)} bytes in, ${count(call.bytes_out)} out, about` : null],
  ]);
}

/** Makes the list of the calls of a program. */
function programOf(calls) {
  if (!calls.length) return null;
  const rows = calls.slice(0, 1000).map((call) => h("tr", {}, h("th", { scope: "row" }, h("a", { href: `#calls/${encodeURIComponent(call.id)}` }, printable(call.name ?? "", 120))), h("td", {}, verdictOf(call)), h("td", { class: "number" }, duration(call.duration_ms))));
  const head = h("tr", {}, h("th", { scope: "col" }, "Call"), h("th", { scope: "col" }, "Verdict"), h("th", { scope: "col", class: "number" }, "Took"));
  return section("Calls of the program", h("table", { class: "steps" }, h("thead", {}, head), h("tbody", {}, rows)));
}

/** Makes the code of a program as it was written, and the arguments of any other call. */
function argumentsOf({ tool, arguments: given }) {
  if (given === undefined) return null;
  if (tool === "hub_run" && typeof given?.code === "string" && Object.keys(given).length === 1) {
    return section("Program, without secrets", h("pre", { class: "text", tabindex: 0, role: "region", "aria-label": "Program" }, given.code));
  }
  return section("Arguments, without secrets", jsonBlock(given, "Arguments"));
}

function recordOf({ call, route, steps = [] }, program) {
  return [
    factsOf(call),
    h("p", { class: "route" }, routeText(route), route.run ? [", called by ", h("a", { href: `#calls/${encodeURIComponent(route.run)}` }, "a program")] : null),
    program,
    section("What every rule did", steps.length ? stepsOf(steps) : h("p", { class: "quiet" }, "The steps of this call were not collected: nobody watched when it ran.")),
    call.notes?.length ? section("Notes", h("ul", { class: "plain-list" }, call.notes.slice(0, 50).map((note) => h("li", {}, note)))) : null,
    argumentsOf(call),
    call.questions?.length ? section("Questions", jsonBlock(call.questions, "Questions")) : null,
    section("Details", detailsOf(call)),
  ];
}

function routeText({ name, server, tool }) {
  return server ? `${name} → ${server} → ${tool ?? name}` : "It was refused before it had a route.";
}

function stepsOf(steps) {
  const rows = steps.slice(0, 100).map((step) => h("tr", { class: ["passed", "not reached"].includes(step.did) ? "passed" : null }, h("th", { scope: "row" }, step.policy), h("td", {}, step.did)));
  const head = h("tr", {}, h("th", { scope: "col" }, "Rule"), h("th", { scope: "col" }, "Did"));
  return h("table", { class: "steps" }, h("thead", {}, head), h("tbody", {}, rows));
}
