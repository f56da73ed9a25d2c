/** What the page knows of the hub. Views are told of changes once per animation frame. */

/** Calls that are kept; the hub's own ring has 2,000. */
const MAX_CALLS = 4000;
const SECONDS = 60;
/** Verdicts of calls that failed; those that a rule refused and those that were cancelled did not. */
const FAILURES = new Set(["error", "tool_error"]);

export class Store {
  state = null;
  /** Rows of calls, oldest first. */
  calls = [];
  /** Calls that the hub had to leave out of the stream. */
  dropped = 0;
  /** Whether the hub may have calls that are older than those here. */
  mayHaveOlder = true;
  /** Lists that stay in the hub, with the number of changes that were told of each. */
  versions = { clients: 0, catalog: 0 };
  /** How the connection to the hub is: `{state, wait, reason}`. */
  connection = { state: "connecting" };

  #ids = new Set();
  #watchers = new Set();
  #topics = new Set();
  #rates = new Map();

  /** Calls `watcher(topics)` in the next animation frame after changes. */
  watch(watcher) {
    this.#watchers.add(watcher);
  }

  /** Says that something has changed: `state`, `servers`, `calls`, `clients`, `catalog`, `configuration`, `confirmations`, `connection`. */
  touch(topic) {
    if (this.#topics.size === 0) requestAnimationFrame(() => this.#tell());
    this.#topics.add(topic);
  }

  #tell() {
    const topics = this.#topics;
    this.#topics = new Set();
    for (const watcher of this.#watchers) watcher(topics);
  }

  /** Takes the whole state. */
  takeState(state) {
    this.state = state;
    for (const list of Object.keys(this.versions)) this.versions[list] += 1;
    for (const topic of ["state", "servers", "clients", "catalog", "configuration", "confirmations"]) this.touch(topic);
  }

  /** Takes one event of the hub's stream. Returns whether the whole state should be asked for. */
  takeEvent({ event, data }) {
    if (event === "calls") this.#takeCalls(data);
    else if (event === "servers") this.#takeServers(data);
    else if (event === "clients") {
      this.versions.clients += 1;
      if (this.state) this.state.clients = data.count;
      this.touch("clients");
    } else if (event === "catalog") {
      this.versions.catalog += 1;
      if (this.state) this.state.generation = data.generation;
      this.touch("catalog");
    } else if (event === "totals") {
      if (this.state) this.state.totals = data;
      this.touch("servers");
    } else if (event === "confirmations") {
      if (this.state) this.state.confirmations = data;
      this.touch("confirmations");
    } else if (event === "background") {
      if (this.state) this.state.background = data;
      this.touch("state");
    } else if (event === "dropped") {
      this.dropped += data.count;
      this.touch("calls");
    } else return event === "configuration";
    return false;
  }

  #takeCalls(rows) {
    const fresh = rows.filter((row) => !this.#ids.has(row.id));
    this.#keep(fresh);
    const second = Math.floor(Date.now() / 1000);
    const rate = this.#rates.get(second) ?? { calls: 0, errors: 0 };
    for (const row of fresh) {
      rate.calls += 1;
      if (FAILURES.has(row.verdict)) rate.errors += 1;
    }
    this.#rates.set(second, rate);
    for (const old of this.#rates.keys()) if (old < second - SECONDS) this.#rates.delete(old);
    this.touch("calls");
  }

  #keep(fresh) {
    for (const row of fresh) {
      this.#ids.add(row.id);
      this.calls.push(row);
    }
    if (this.calls.length > MAX_CALLS) {
      for (const old of this.calls.splice(0, this.calls.length - MAX_CALLS)) this.#ids.delete(old.id);
      this.mayHaveOlder = true;
    }
  }

  /** Takes calls that are older than those here, newest first. */
  takeOlder({ calls, more }) {
    const fresh = calls.filter((row) => !this.#ids.has(row.id)).reverse();
    for (const row of fresh) this.#ids.add(row.id);
    this.calls = [...fresh, ...this.calls];
    this.mayHaveOlder = more && this.calls.length < MAX_CALLS;
    this.touch("calls");
  }

  #takeServers(rows) {
    if (!this.state) return;
    const changed = new Map(rows.map((row) => [row.server, row]));
    this.state.servers = this.state.servers.map((row) => {
      const newer = changed.get(row.server);
      changed.delete(row.server);
      return newer ?? row;
    });
    this.state.servers.push(...changed.values());
    this.touch("servers");
  }

  /** Takes a confirmation away that was answered here. */
  answered(id) {
    if (this.state) this.state.confirmations = this.state.confirmations.filter((row) => row.id !== id);
    this.touch("confirmations");
  }

  /** Returns calls and errors of each of the last 60 seconds, oldest first. */
  rates() {
    const now = Math.floor(Date.now() / 1000);
    return Array.from({ length: SECONDS }, (_, at) => this.#rates.get(now - SECONDS + at) ?? { calls: 0, errors: 0 });
  }

  /** Says how the connection to the hub is. */
  connected(connection) {
    this.connection = connection;
    this.touch("connection");
  }
}
