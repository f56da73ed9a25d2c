/** JSON as an indented text, with bounds on its depth, its members and the length of each text. */

import { h } from "./element.js";
import { count } from "./text.js";

const MAX_MEMBERS = 2000;
const MAX_DEPTH = 24;
const MAX_TEXT = 4000;

/** Returns the indented text of a value; what is beyond the bounds is said in its place. */
export function jsonText(value) {
  const left = { members: MAX_MEMBERS };
  return JSON.stringify(bounded(value, left, MAX_DEPTH), null, 2) ?? "";
}

function bounded(value, left, depth) {
  if (typeof value === "string") {
    return value.length > MAX_TEXT ? `${value.slice(0, MAX_TEXT)}… (${count(value.length)} characters)` : value;
  }
  if (value === null || typeof value !== "object") return value;
  if (depth === 0) return "… (nested more deeply)";
  if (Array.isArray(value)) {
    const shown = [];
    for (const member of value) {
      if (left.members-- <= 0) return [...shown, `… (${count(value.length - shown.length)} more)`];
      shown.push(bounded(member, left, depth - 1));
    }
    return shown;
  }
  const shown = [];
  const names = Object.keys(value);
  for (const name of names) {
    if (left.members-- <= 0) {
      shown.push(["…", `${count(names.length - shown.length)} more`]);
      break;
    }
    shown.push([bounded(name, left, depth), bounded(value[name], left, depth - 1)]);
  }
  return Object.fromEntries(shown);
}

/** Makes a block of JSON that can be scrolled by the keyboard. */
export function jsonBlock(value, label) {
  return h("pre", { class: "json", tabindex: 0, role: "region", "aria-label": label }, jsonText(value));
}

/** Makes a block of JSON behind a summary, drawn when it is opened. */
export function jsonDetails(summary, value) {
  const details = h("details", {}, h("summary", {}, summary));
  details.addEventListener("toggle", () => details.append(jsonBlock(value, summary)), { once: true });
  return details;
}
