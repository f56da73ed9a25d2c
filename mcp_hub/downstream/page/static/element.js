/** Makes elements. What they show are text nodes: no text is ever read as HTML. */

import { isWebAddress, printable, printableLines, timeOf } from "./text.js";

/**
 * Makes an element with attributes, listeners (`onclick: function`) and children (elements, texts, lists, null).
 * Texts keep their lines; hidden characters become escapes and long texts are cut.
 */
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : printable(value, 4000));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : printableLines(child));
  }
}

/** Gives an element other children. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Makes an element of SVG. */
export function drawn(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/** Sets the text of an element, in one line, without touching the document when it is the same. */
export function setText(element, text) {
  const shown = printable(text ?? "");
  if (element.textContent !== shown) element.textContent = shown;
}

/** Makes a time in the viewer's zone, with the full time as its title. */
export function moment(iso) {
  const { short, full } = timeOf(iso);
  return h("time", { datetime: iso ?? "", title: full }, short);
}

/** Makes a button. */
export function button(text, onclick, attributes = {}) {
  return h("button", { type: "button", ...attributes, onclick }, text);
}

/** Makes a link that opens beside the page; an address that is not http or https stays a text. */
export function outward(address, text = address) {
  if (!isWebAddress(address)) return h("code", {}, text);
  const link = h("a", { target: "_blank", rel: "noopener noreferrer" }, text);
  link.href = address;
  return link;
}

/** Makes a list of facts from pairs of a name and a text or an element; pairs without a value are left out. */
export function facts(pairs) {
  const present = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, present.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

/** Makes a box for an error with its code and its cure. */
export function problem({ code, message, cure }) {
  return h(
    "div",
    { class: "problem" },
    h("p", {}, code ? [h("code", { class: "code" }, code), " "] : null, message),
    cure ? advice(cure) : null,
  );
}

/** Makes a sentence that says what to do; what stands between backticks is code. */
export function advice(text) {
  return h("p", { class: "cure" }, String(text).split("`").map((part, at) => (at % 2 ? h("code", {}, part) : part)));
}

/** Makes what an empty view shows: what is missing, and what to do. */
export function emptyState(title, ...advice) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), h("p", {}, ...advice));
}

/** Makes a section with a heading. */
export function section(title, ...children) {
  return h("section", { class: "section" }, h("h3", {}, title), ...children);
}

/** Makes a part of a page that is no panel: a section with a heading one level higher. */
export function chapter(title, ...children) {
  return h("section", { class: "section" }, h("h2", {}, title), ...children);
}
