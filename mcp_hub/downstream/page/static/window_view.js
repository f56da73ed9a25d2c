/** A list whose rows stay in the hub, which filters and sorts them: the page asks for those in sight. */

import { emptyState, problem } from "./element.js";
import { ListView } from "./list_view.js";

/** Rows that are asked for before and behind those that are drawn. */
const AROUND = 50;

export class WindowView extends ListView {
  #path;
  #list;
  /** The rows that match, as far as they are known: those of the last answer, in their places. */
  #rows = [];
  #all = 0;
  /** The last request that was answered: `{query, version, first, end}`; null before. */
  #asked = null;
  #asking = false;
  #refusal = null;

  /** `path` is where the hub has the rows, `list` the name of the list in `store.versions`. */
  constructor(app, { path, list, ...options }) {
    super(app, { ...options, onneed: () => this.#ask() });
    this.#path = path;
    this.#list = list;
  }

  // What a view says of its own: what of the list it asks for, what to do with an answer (and whether the list has changed
  // since the last one), what to say when there are no rows.

  query() {
    return {};
  }

  took() {}

  none() {
    return emptyState("There is nothing here.");
  }

  found() {
    this.#ask();
    return { rows: this.#rows, all: this.#all };
  }

  empty() {
    if (this.#refusal !== null) return problem(this.#refusal);
    return this.#asked === null ? emptyState(`Asking for the ${this.words.many}…`) : this.none();
  }

  #want() {
    const { first, last } = this.grid.inSight();
    const text = this.filter.value.trim();
    const query = new URLSearchParams({ ...this.query(), ...this.grid.sort, ...(text && { text }) });
    const version = this.app.store.versions[this.#list];
    return { query: query.toString(), version, seen: { first, last }, first: Math.max(0, first - AROUND), end: last + AROUND };
  }

  #has({ query, version, seen }) {
    const asked = this.#asked;
    if (asked?.query !== query || asked.version !== version) return false;
    return asked.first <= seen.first && Math.min(seen.last, this.#rows.length) <= asked.end;
  }

  /** Asks for what is in sight, until the last answer has it. */
  async #ask() {
    if (this.#asking) return;
    this.#asking = true;
    try {
      for (let want = this.#want(); !this.#has(want); want = this.#want()) await this.#take(want);
    } finally {
      this.#asking = false;
    }
  }

  async #take(want) {
    const hasChanged = this.#asked?.version !== want.version;
    try {
      const answer = await this.app.session.request("GET", `${this.#path}?${want.query}&first=${want.first}&count=${want.end - want.first}`);
      this.#rows = [];
      this.#rows.length = answer.matching;
      answer.rows.forEach((row, at) => (this.#rows[answer.first + at] = row));
      this.#all = answer.total;
      this.#refusal = null;
      this.took(answer, hasChanged);
    } catch (refusal) {
      this.#refusal = refusal;
      this.#rows = [];
      this.#all = 0;
    }
    this.#asked = want;
    this.app.store.touch(this.#list);
  }
}
