/** A control that has just moved or appeared does nothing for a moment: the click was meant for what stood there before.
 * A key is meant for the control with the focus, wherever that has moved. So keys wait only for controls that appeared. */

/** Milliseconds for which it does nothing. */
const DEAD = 700;
/** Pixels that it may move: so few bring no other control under the pointer. */
const SLACK = 8;
const CONTROLS = "button, a[href]";

/** Where each control was at the last look, since when, and when it appeared: `{left, top, since, appeared}`. */
let places = new Map();
/** Whether the document has changed since then. Without a change, what moves is scrolled. */
let changed = false;
let scheduled = false;
let timer;

/** Watches all controls of the page, also those that are made later. Dead ones have `aria-disabled`. */
export function watchControls() {
  const attributeFilter = ["class", "hidden", "open", "style"];
  new MutationObserver(note).observe(document.body, { subtree: true, childList: true, characterData: true, attributeFilter });
  addEventListener("resize", note);
  addEventListener("scroll", schedule, { capture: true, passive: true });
  addEventListener("click", stop, { capture: true });
  note();
}

function note() {
  // Marked at once, not with the next frame: until then a key or click would be dropped though the control looked alive.
  for (const control of document.querySelectorAll(CONTROLS)) {
    if (!places.has(control)) control.setAttribute("aria-disabled", "true");
  }
  changed = true;
  schedule();
}

function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(look);
}

function look() {
  const now = performance.now();
  const before = places;
  places = new Map();
  // What lies behind a dialog cannot be reached: it appears when the dialog is closed.
  const reachable = [...document.querySelectorAll("dialog[open]")].at(-1) ?? document;
  for (const control of reachable.querySelectorAll(CONTROLS)) {
    const { left, top, width } = control.getBoundingClientRect();
    if (width === 0) continue;
    const place = before.get(control);
    const stayed = place !== undefined && Math.abs(place.left - left) <= SLACK && Math.abs(place.top - top) <= SLACK;
    const since = place === undefined || changed ? now : place.since;
    places.set(control, stayed ? place : { left, top, since, appeared: place?.appeared ?? now });
  }
  changed = scheduled = false;
  mark();
}

/** Marks the dead controls, and looks again when the first of them comes to life. */
function mark() {
  const now = performance.now();
  let next = Infinity;
  for (const [control, { since }] of places) {
    const left = since + DEAD - now;
    if (left > 0) {
      control.setAttribute("aria-disabled", "true");
      next = Math.min(next, left);
    } else control.removeAttribute("aria-disabled");
  }
  clearTimeout(timer);
  if (next < Infinity) timer = setTimeout(mark, next + 1);
}

function stop(event) {
  if (changed) look();
  const place = places.get(event.target.closest?.(CONTROLS));
  const byKey = event.detail === 0;
  if (place === undefined || performance.now() - (byKey ? place.appeared : place.since) >= DEAD) return;
  event.preventDefault();
  event.stopImmediatePropagation();
}
