/** A view that is a list with a filter, and a panel for the row that is open. */

import { DataGrid } from "./data_grid.js";
import { button, emptyState, h, problem } from "./element.js";
import { Panel } from "./panel.js";
import { count, counted, printable } from "./text.js";

export class ListView {
  #texts = new WeakMap();
  #shownFor = null;
  /** What the panel shows of its row, `{path, version, draw}`; whether it is there, and whether the hub is asked for it. */
  #detail = null;
  #isShown = false;
  #asking = false;

  /**
   * `app` has `store`, `session`, `isAdmin` and `go(view, key)`. `name` is that of the view, `one` and `many` what its
   * rows are called, `columns` those of the grid, `key(row)` the identity of a row, `texts(row)` what the filter reads.
   */
  constructor(app, { name, label, one, many = `${one}s`, columns, key, texts, onneed = null }) {
    this.app = app;
    this.name = name;
    this.open = null;
    this.key = key;
    this.words = { one, many };
    /** What is said behind the number of rows. */
    this.remark = "";
    this.texts = texts;
    this.grid = new DataGrid({ label, name: `${name}-grid`, columns, key, onopen: (row) => app.go(name, key(row)), onneed });
    this.panel = new Panel(`The ${one} that is open`, () => this.closePanel());
    this.filter = h("input", {
      type: "search",
      placeholder: `Filter ${many}`,
      "aria-label": `Filter ${many}`,
      "aria-keyshortcuts": "/",
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => this.#filtered(),
    });
    this.total = h("p", { class: "total" });
    this.toolbar = h("div", { class: "toolbar", role: "search", "aria-label": label }, this.filter, this.total);
    this.element = h(
      "div",
      { class: `view list-view ${name}-view` },
      h("div", { class: "list" }, this.toolbar, this.grid.frame),
      this.panel.element,
    );
  }

  /** Adds selects and other controls beside the filter. */
  addControls(...controls) {
    this.total.before(...controls);
  }

  // What a view says of its own: all rows, which of them pass its other filters, what to say when there are none.

  rows() {
    return [];
  }

  passes() {
    return true;
  }

  empty() {
    return emptyState("There is nothing here.");
  }

  /** Draws the panel for `key`: when it is `opened`, and when what it shows may have changed. */
  drawPanel() {}

  /** Shows the view, with the row of `key` open. */
  show(key) {
    const opened = key !== null && key !== this.open;
    this.open = key;
    this.element.classList.toggle("has-panel", key !== null);
    this.grid.setOpen(key);
    this.draw();
    if (key === null) this.panel.hide();
    if (opened) this.panel.focus();
  }

  /** Draws what has changed. */
  draw() {
    if (!this.app.store.state) return;
    const { rows, all } = this.found();
    this.grid.setRows(rows);
    const total = `${rows.length === all ? "" : `${count(rows.length)} of `}${counted(all, this.words.one, this.words.many)}${this.remark}`;
    if (this.total.textContent !== total) this.total.textContent = total;
    this.#drawEmpty(all, rows.length);
    const { open } = this;
    const opened = this.#shownFor !== open;
    if (opened) this.#detail = null;
    this.#shownFor = open;
    if (open !== null) this.drawPanel(open, opened);
  }

  /** Returns the rows that pass the filters, and the number of all. */
  found() {
    const all = this.rows();
    const wanted = this.filter.value.trim().toLowerCase();
    const words = wanted === "" ? [] : wanted.split(/\s+/);
    return { rows: all.filter((row) => this.passes(row) && this.#has(row, words)), all: all.length };
  }

  /**
   * Shows in the panel what the hub has at `path`, and asks again when `version` is another one. `draw(found)` draws it and
   * returns a title and elements, which stay. One request runs at a time; an answer for a row that was left is dropped.
   */
  async detail(path, version, draw) {
    const { one } = this.words;
    const before = this.#detail;
    if (before?.path === path && before.version === version) return;
    this.#detail = { path, version, draw };
    if (before?.path !== path) {
      this.#isShown = false;
      this.panel.show(this.open, one, h("p", { class: "quiet" }, `Asking for the ${one}…`));
    }
    if (this.#asking) return;
    this.#asking = true;
    for (let asked = null; this.#detail !== null && asked !== this.#detail; ) {
      asked = this.#detail;
      const found = await this.app.session.request("GET", asked.path).catch((refusal) => refusal);
      if (this.#detail?.path !== asked.path) continue;
      const isFound = !(found instanceof Error);
      const gone = found.status === 404 ? emptyState(`There is no ${one} of this name now.`) : null;
      const [title, ...content] = isFound ? asked.draw(found) : [this.open, gone ?? problem(found)];
      if (!isFound || !this.#isShown) this.panel.show(title, one, content);
      this.#isShown = isFound;
    }
    this.#asking = false;
  }

  #has(row, words) {
    if (words.length === 0) return true;
    let text = this.#texts.get(row);
    if (text === undefined) {
      text = this.texts(row).filter(Boolean).join(" ").slice(0, 4000).toLowerCase();
      this.#texts.set(row, text);
    }
    return words.every((word) => text.includes(word));
  }

  #drawEmpty(all, shown) {
    if (shown > 0) this.grid.setEmpty(null);
    else if (all === 0) this.grid.setEmpty(this.empty());
    else {
      const clear = button("Clear the filters", () => this.clearFilters());
      this.grid.setEmpty(h("div", { class: "empty" }, h("p", { class: "empty-title" }, `No ${this.words.one} matches.`), clear));
    }
  }

  #filtered() {
    this.grid.release();
    this.draw();
  }

  /** Takes all filters back. */
  clearFilters() {
    this.filter.value = "";
    for (const select of this.toolbar.querySelectorAll("select")) select.value = "";
    this.draw();
    this.filter.focus();
  }

  closePanel() {
    this.app.go(this.name, null);
    this.grid.focus();
  }

  /** Handles Escape: takes the filter back, else closes the panel. Returns whether there was something to do. */
  escape(target) {
    if (target === this.filter && this.filter.value !== "") {
      this.filter.value = "";
      this.#filtered();
      return true;
    }
    if (this.panel.isOpen) {
      this.closePanel();
      return true;
    }
    return false;
  }
}

/** A select with a first choice that filters nothing; `update(values)` gives it the others. */
export class Choice {
  #values = "";
  #none;

  constructor(label, none, onchange) {
    this.#none = none;
    this.element = h("select", { "aria-label": label, onchange }, h("option", { value: "" }, none));
  }

  get value() {
    return this.element.value;
  }

  /** Takes the values that can be chosen: texts, or pairs of a value and its name. */
  update(values) {
    const said = JSON.stringify(values);
    if (said === this.#values) return;
    this.#values = said;
    const before = this.element.value;
    const options = values.slice(0, 500).map((value) => {
      const [own, name] = Array.isArray(value) ? value : [value, value];
      const option = h("option", {}, printable(name, 80));
      option.value = own;
      return option;
    });
    this.element.replaceChildren(h("option", { value: "" }, this.#none), ...options);
    this.element.value = options.some((option) => option.value === before) ? before : "";
  }
}

/** A part of a panel that is drawn again only when what it is made of has changed, and keeps the keyboard. */
export class Part {
  #made = null;
  element = h("div", { class: "part" });

  /** Draws `make()` when `from`, as JSON, is not what it was. */
  draw(from, make) {
    const said = JSON.stringify(from);
    if (said === this.#made) return;
    this.#made = said;
    const focused = this.element.contains(document.activeElement) ? document.activeElement.textContent : null;
    this.element.replaceChildren(...[make()].flat().filter(Boolean));
    if (focused === null) return;
    const again = [...this.element.querySelectorAll("button")].find((one) => one.textContent === focused);
    (again ?? this.element.closest(".panel")?.querySelector(".panel-title"))?.focus();
  }
}
