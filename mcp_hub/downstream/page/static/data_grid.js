/** A list of rows and columns of any length: only the rows in sight are in the document. */

import { fill, h, setText } from "./element.js";

/** Rows that are drawn above and below those in sight. */
const MARGIN = 6;
const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });
let grids = 0;

export class DataGrid {
  #columns;
  #key;
  #onopen;
  #onneed;
  #body;
  #rows = [];
  #shown = [];
  #pool = [];
  #height = 34;
  /** Where the list is scrolled to, and how much of it is seen: kept, as asking the browser costs a layout. */
  #top = 0;
  #view = 0;
  #active = null;
  /** The place that the keyboard went to while its row was not known. */
  #going = null;
  #open = null;
  #sort = null;
  #id;
  #empty;
  #scheduled = false;
  /** Whether a pointer was moved onto the list: nothing comes in front of its rows then, so that no click meets another one. */
  #held = false;
  /** All rows, while some are held back. */
  #latest = null;

  /**
   * `columns`: `{key, title, render(cell, row), value(row)}`; without `render` the value is the text of the cell, and
   * with `sortable` a click on the title sorts by it. `key(row)` is its identity, `onopen(row)` is told of Enter and clicks.
   * With `onneed()` the hub sorts and not all rows are known: it is called when one in sight is not, or is to be sorted.
   */
  constructor({ label, name, columns, key, onopen, onneed = null }) {
    this.#columns = columns;
    this.#key = (row) => (row === undefined ? undefined : key(row));
    this.#onopen = onopen;
    this.#onneed = onneed;
    grids += 1;
    this.#id = `grid-${grids}`;
    const head = h(
      "div",
      { role: "row", class: "grid-row grid-head", "aria-rowindex": 1 },
      columns.map((column) => this.#titleOf(column)),
    );
    this.#body = h("div", { role: "rowgroup", class: "grid-body" });
    this.#empty = h("div", { class: "grid-empty" });
    this.element = h(
      "div",
      { role: "grid", class: `grid ${name}`, tabindex: 0, "aria-label": label, "aria-colcount": columns.length },
      h("div", { role: "rowgroup", class: "grid-top" }, head),
      this.#body,
    );
    this.frame = h("div", { class: "grid-frame" }, this.element, this.#empty);
    this.element.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.#onkey(event));
    this.#body.addEventListener("click", (event) => this.#onclick(event));
    this.#body.addEventListener("pointermove", (event) => (this.#held = event.pointerType === "mouse"));
    this.#body.addEventListener("pointerleave", () => this.release());
    new ResizeObserver(() => this.#measure()).observe(this.element);
  }

  #titleOf(column) {
    const attributes = { role: "columnheader", class: `cell ${column.key}` };
    if (!column.sortable) return h("div", attributes, column.title);
    const sort = () => {
      const down = this.#sort?.column === column ? !this.#sort.down : column.downFirst === true;
      this.#sort = { column, down };
      for (const cell of this.element.querySelectorAll("[aria-sort]")) cell.removeAttribute("aria-sort");
      title.setAttribute("aria-sort", down ? "descending" : "ascending");
      if (this.#onneed === null) this.#arrange();
      else this.#onneed();
    };
    const title = h("div", attributes, h("button", { type: "button", class: "plain", onclick: sort }, column.title));
    return title;
  }

  /** What the hub is to sort by, as members of a query. */
  get sort() {
    return this.#sort === null ? {} : { sort: this.#sort.column.key.split(" ")[0], ...(this.#sort.down && { down: "1" }) };
  }

  /** Returns the places of the rows that are drawn: `{first, last}`. */
  inSight() {
    const first = Math.max(0, this.#firstInSight() - MARGIN);
    return { first, last: first + Math.ceil(this.#view / this.#height) + 2 * MARGIN };
  }

  /** Shows rows. What is in sight stays in sight when rows come in front of it. */
  setRows(rows) {
    const first = this.#shown[this.#firstInSight()];
    const top = this.#held && this.#sort === null && this.#onneed === null ? this.#shown[0] : undefined;
    const before = top === undefined ? 0 : rows.findIndex((row) => this.#key(row) === this.#key(top));
    this.#latest = before > 0 ? rows : null;
    this.#rows = before > 0 ? rows.slice(before) : rows;
    const atTop = this.#top < this.#height;
    this.#arrange(atTop ? null : first);
  }

  /** Shows what was held back. */
  release() {
    this.#held = false;
    if (this.#latest !== null) this.setRows(this.#latest);
  }

  /** Says in place of rows why there are none; null when there are. */
  setEmpty(content) {
    fill(this.#empty, content);
    this.frame.classList.toggle("is-empty", content !== null);
  }

  /** Marks the row that is open beside the list, by its key; null for none. */
  setOpen(key) {
    this.#open = key;
    if (key !== null && this.#active === null) this.#active = key;
    for (const row of this.#pool) row.row = undefined;
    this.#schedule();
  }

  /** Gives the list the keyboard, and marks its first row if none is marked. */
  focus() {
    this.element.focus({ preventScroll: true });
    if (this.#activeAt() < 0 && this.#shown.length > 0) this.#goTo(0);
  }

  #arrange(anchor = null) {
    this.#shown = this.#rows;
    if (this.#sort !== null && this.#onneed === null) {
      const { column, down } = this.#sort;
      const sign = down ? -1 : 1;
      this.#shown = [...this.#rows].sort((a, b) => sign * compare(column.value(a), column.value(b)));
    }
    this.element.setAttribute("aria-rowcount", this.#shown.length + 1);
    this.#body.style.height = `${this.#shown.length * this.#height}px`;
    if (anchor !== null && anchor !== undefined && this.#sort === null) {
      const before = this.#firstInSight();
      const key = this.#key(anchor);
      const now = this.#shown.findIndex((row) => this.#key(row) === key);
      if (now > before) this.#scrollTo(this.#top + (now - before) * this.#height);
    }
    this.#draw();
  }

  #firstInSight() {
    return Math.floor(this.#top / this.#height);
  }

  #scrollTo(top) {
    this.#top = Math.max(0, top);
    this.element.scrollTop = this.#top;
  }

  #scrolled() {
    // An element that is not in the document forgets where it was.
    if (this.#view > 0) this.#top = this.element.scrollTop;
    this.#schedule();
  }

  #measure() {
    const hidden = this.#view === 0;
    this.#view = this.element.clientHeight;
    if (this.#view === 0) return;
    if (hidden) this.element.scrollTop = this.#top;
    const height = Number.parseFloat(getComputedStyle(this.element).getPropertyValue("--row-height")) || 34;
    if (height !== this.#height) {
      this.#height = height;
      this.#body.style.height = `${this.#shown.length * height}px`;
      for (const slot of this.#pool) slot.at = -1;
    }
    this.#draw();
  }

  #schedule() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    requestAnimationFrame(() => {
      this.#scheduled = false;
      this.#draw();
    });
  }

  #draw() {
    const { first, last: end } = this.inSight();
    const last = Math.min(this.#shown.length, end);
    const needed = Math.max(0, last - first);
    while (this.#pool.length < needed) this.#pool.push(this.#makeRow());
    // A row of the list always has the same element while it is in sight, so that nothing is drawn twice.
    const size = this.#pool.length;
    const used = new Set();
    for (let at = first; at < last; at += 1) {
      const row = this.#pool[at % size];
      used.add(row);
      this.#drawRow(row, at);
    }
    for (const row of this.#pool) if (!used.has(row) && !row.element.hidden) row.element.hidden = true;
    if (this.#going !== null && this.#shown[this.#going] !== undefined) this.#goTo(this.#going);
    this.#point();
    for (let at = first; at < last; at += 1) if (this.#shown[at] === undefined) return this.#onneed?.();
  }

  #makeRow() {
    const cells = this.#columns.map((column) => h("div", { role: "gridcell", class: `cell ${column.key}` }));
    const element = h("div", { role: "row", class: "grid-row" }, cells);
    this.#body.append(element);
    return { element, cells, row: undefined, at: -1 };
  }

  #drawRow(slot, at) {
    const row = this.#shown[at];
    const { element, cells } = slot;
    element.hidden = false;
    if (slot.at !== at) {
      slot.at = at;
      element.style.transform = `translateY(${at * this.#height}px)`;
      element.id = `${this.#id}-${at}`;
      element.setAttribute("aria-rowindex", at + 2);
    }
    const key = this.#key(row);
    element.classList.toggle("is-active", row !== undefined && key === this.#active);
    element.setAttribute("aria-selected", row !== undefined && key === this.#open);
    if (slot.row === row && row !== undefined) return;
    slot.row = row;
    this.#columns.forEach((column, index) => {
      if (row === undefined) cells[index].replaceChildren();
      else if (column.render) column.render(cells[index], row);
      else setText(cells[index], column.value(row));
    });
  }

  #point() {
    const at = this.#activeAt();
    const slot = at < 0 ? undefined : this.#pool.find((row) => row.at === at && !row.element.hidden);
    if (slot === undefined) this.element.removeAttribute("aria-activedescendant");
    else this.element.setAttribute("aria-activedescendant", slot.element.id);
  }

  #activeAt() {
    if (this.#going !== null) return this.#going;
    return this.#active === null ? -1 : this.#shown.findIndex((row) => this.#key(row) === this.#active);
  }

  #onkey(event) {
    if (event.target !== this.element || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.#activeAt();
    const page = Math.max(1, Math.floor(this.#view / this.#height) - 2);
    const end = this.#shown.length - 1;
    const to = {
      ArrowDown: at + 1,
      ArrowUp: Math.max(at - 1, 0),
      PageDown: at + page,
      PageUp: at - page,
      Home: 0,
      End: end,
    }[event.key];
    if (to !== undefined && end >= 0) {
      event.preventDefault();
      this.#goTo(Math.min(Math.max(to, 0), end));
    } else if ((event.key === "Enter" || event.key === " ") && this.#shown[at] !== undefined) {
      event.preventDefault();
      this.#onopen(this.#shown[at]);
    }
  }

  #goTo(at) {
    this.#going = this.#shown[at] === undefined ? at : null;
    this.#active = this.#key(this.#shown[at]) ?? null;
    const top = at * this.#height;
    const room = this.#view - this.#body.offsetTop - this.#height;
    if (top < this.#top) this.#scrollTo(top);
    else if (top > this.#top + room) this.#scrollTo(top - room);
    this.#draw();
  }

  #onclick(event) {
    const element = event.target.closest("[role=row]");
    const slot = this.#pool.find((row) => row.element === element);
    if (slot?.row === undefined || String(getSelection())) return;
    this.#going = null;
    this.#active = this.#key(slot.row);
    this.#onopen(slot.row);
    this.#draw();
  }
}

function compare(a, b) {
  if (typeof a === "number" || typeof b === "number") return (a ?? -1) - (b ?? -1);
  return collator.compare(a ?? "", b ?? "");
}
