/** The page: opens the session, follows the hub's events, and shows one view at a time. */

import { CallsView } from "./calls_view.js";
import { ClientsView } from "./clients_view.js";
import { ConfigurationView } from "./configuration_view.js";
import { Confirmations } from "./confirmations.js";
import { announce } from "./dialog.js";
import { h, setText } from "./element.js";
import { Entrance } from "./entrance.js";
import { Feed } from "./event_stream.js";
import { Masthead } from "./masthead.js";
import { RulesView } from "./rules_view.js";
import { ServersView } from "./servers_view.js";
import { Session } from "./session.js";
import { watchControls } from "./steady_controls.js";
import { Store } from "./store.js";
import { printable, short } from "./text.js";
import { ToolsView } from "./tools_view.js";

const VIEWS = {
  servers: { title: "Servers", View: ServersView, topics: ["servers", "state"] },
  tools: { title: "Tools", View: ToolsView, topics: ["catalog", "servers", "state"] },
  calls: { title: "Calls", View: CallsView, topics: ["calls", "confirmations", "state"] },
  rules: { title: "Rules", View: RulesView, topics: ["state", "configuration"] },
  clients: { title: "Clients", View: ClientsView, topics: ["clients", "state"] },
  configuration: { title: "Configuration", View: ConfigurationView, topics: ["state", "configuration"] },
};
/** States of a server that are told to screen readers. */
const TOLD = new Set(["ready", "backing off", "disabled"]);

class App {
  session = new Session();
  store = new Store();
  #feed = new Feed(this.session, (event) => this.#take(event), (connection) => this.#connected(connection));
  #masthead = new Masthead(this.store, { retry: () => this.#feed.retry(), leave: () => this.#leave() });
  #confirmations = new Confirmations(this);
  #entrance = new Entrance((credential) => this.#enter(credential));
  #tabs = new Map();
  #views = new Map();
  #stale = new Set();
  #place = h("div", { id: "view", role: "tabpanel", "aria-labelledby": "tab-servers" });
  #now = null;
  #states = new Map();

  get isAdmin() {
    return this.store.state?.who?.admin === true;
  }

  /** Begins. */
  async start() {
    watchControls();
    this.session.onended = (refusal) => this.#showEntrance(refusal);
    this.store.watch((topics) => this.#draw(topics));
    addEventListener("hashchange", () => this.#route());
    document.addEventListener("keydown", (event) => this.#onkey(event));
    if (location.hash.startsWith("#s=")) await this.#follow();
    else if (this.session.isOpen) this.#showHub();
    else this.#showEntrance(null);
  }

  /** Goes to a view and opens the row of a key there; null for none. */
  go(view, key) {
    location.hash = key === null ? view : `${view}/${encodeURIComponent(key)}`;
  }

  /** Asks for the whole state. */
  async reload() {
    try {
      this.store.takeState(await this.session.request("GET", "state"));
    } catch (refusal) {
      if (refusal.status !== 401) announce(refusal.message);
    }
  }

  async #follow() {
    const secret = location.hash.slice(3);
    history.replaceState(null, "", location.pathname);
    document.body.replaceChildren(this.#entrance.element);
    await this.#entrance.tryWith({ secret });
  }

  async #enter(credential) {
    this.#feed.close();
    await this.session.open(credential);
    // What was shown in this tab before may be another viewer's.
    if (this.store.state) location.reload();
    else this.#showHub();
  }

  async #leave() {
    this.#feed.close();
    await this.session.close().catch(() => {});
    this.#showEntrance(null);
  }

  #showEntrance(refusal) {
    this.#feed.close();
    this.#entrance.say(refusal);
    document.title = "mcp-hub";
    document.body.replaceChildren(this.#entrance.element);
  }

  #showHub() {
    const tabs = Object.entries(VIEWS).map(([name, { title }]) => this.#tab(name, title));
    document.body.replaceChildren(
      this.#masthead.element,
      h("nav", { "aria-label": "Views" }, h("div", { class: "tabs", role: "tablist", "aria-label": "Views", onkeydown: (event) => this.#ontabs(event) }, tabs)),
      this.#confirmations.element,
      h("main", {}, this.#place),
      h("div", { id: "announcements", role: "status" }),
    );
    this.#now = null;
    this.#route();
    this.#feed.run();
  }

  #tab(name, title) {
    const number = h("span", { class: "tab-count" });
    const tab = h("button", { type: "button", id: `tab-${name}`, role: "tab", "aria-controls": "view", onclick: () => this.go(name, null) }, title, " ", number);
    this.#tabs.set(name, { tab, number });
    return tab;
  }

  #ontabs(event) {
    const names = Object.keys(VIEWS);
    const at = names.indexOf(this.#now);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const name = names[(to + names.length) % names.length];
    this.go(name, null);
    this.#tabs.get(name).tab.focus();
  }

  #route() {
    if (location.hash.startsWith("#s=")) {
      this.#follow();
      return;
    }
    if (!this.session.isOpen) return;
    const [path, query] = location.hash.slice(1).split("?");
    const [name, ...rest] = path.split("/");
    const view = Object.hasOwn(VIEWS, name) ? name : "servers";
    let key = null;
    try {
      key = rest.length ? decodeURIComponent(rest.join("/")) : null;
    } catch {
      // An address that somebody has changed by hand.
    }
    this.#show(view, key, new URLSearchParams(query ?? ""));
  }

  #show(name, key, query) {
    let view = this.#views.get(name);
    if (view === undefined) {
      view = new VIEWS[name].View(this);
      this.#views.set(name, view);
    }
    if (this.#now !== name) {
      this.#now = name;
      this.#place.replaceChildren(view.element);
      this.#place.setAttribute("aria-labelledby", `tab-${name}`);
      for (const [other, { tab }] of this.#tabs) {
        tab.setAttribute("aria-selected", String(other === name));
        tab.tabIndex = other === name ? 0 : -1;
      }
      requestAnimationFrame(() => this.#tabs.get(name).tab.scrollIntoView({ block: "nearest", inline: "nearest" }));
    }
    document.title = `${key === null ? VIEWS[name].title : printable(key, 80)} · mcp-hub`;
    this.#stale.delete(name);
    view.show(key, query);
  }

  #draw(topics) {
    this.#masthead.draw(topics);
    this.#count();
    for (const [name, { topics: wanted }] of Object.entries(VIEWS)) {
      if (name === this.#now && wanted.some((topic) => topics.has(topic))) this.#views.get(name).draw();
    }
    if (topics.has("confirmations")) this.#confirmations.draw();
    if (topics.has("servers")) this.#tell();
  }

  #count() {
    const { state } = this.store;
    if (state === null) return;
    const counts = { servers: state.servers.length, tools: state.totals.tools, clients: state.clients, rules: state.rules.length };
    const { findings = [], problem, waiting } = state.configuration ?? {};
    if (findings.length || problem || waiting) counts.configuration = findings.length + (problem || waiting ? 1 : 0);
    for (const [name, { number }] of this.#tabs) setText(number, counts[name] === undefined ? "" : short(counts[name]));
  }

  /** Tells screen readers of servers that have become ready, failed or were disabled, in one sentence. */
  #tell() {
    const told = [];
    for (const { server, state } of this.store.state?.servers ?? []) {
      if (this.#states.has(server) && this.#states.get(server) !== state && TOLD.has(state)) told.push(`${printable(server, 60)} is ${state}`);
      this.#states.set(server, state);
    }
    if (told.length) announce(`${told.slice(0, 3).join(", ")}${told.length > 3 ? ` and ${told.length - 3} more` : ""}.`);
  }

  #take(event) {
    if (this.store.takeEvent(event)) this.reload();
  }

  #connected(connection) {
    this.store.connected(connection);
    if (connection.state === "live") this.reload();
  }

  #onkey(event) {
    const view = this.#views.get(this.#now);
    if (view === undefined || document.querySelector("dialog[open]")) return;
    const typing = event.target.matches?.("input, textarea, select");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey && view.filter) {
      event.preventDefault();
      view.filter.focus();
      view.filter.select();
    } else if (event.key === "Escape" && view.escape(event.target)) event.preventDefault();
    else if (event.key === "ArrowDown" && event.target === view.filter && view.grid) {
      event.preventDefault();
      view.grid.focus();
    }
  }
}

// In a task of its own: the modules before it have taken their time.
setTimeout(() => new App().start());
