/** Texts as the page shows them: hidden characters made visible, long ones cut, numbers and times of the viewer. */

const HIDDEN_IN_LINE = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/gu;
const HIDDEN_IN_LINES = /(?![\n\t])[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/gu;

/** Characters of one text that are shown at most. */
export const MAX_SHOWN = 20_000;

/** Formats are made when they are first needed: each takes milliseconds, and the page should be there first. */
const formats = {};
const MAKE = {
  whole: () => new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 }),
  fraction: () => new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 }),
  compact: () => new Intl.NumberFormat(undefined, { notation: "compact", maximumSignificantDigits: 3 }),
  clock: () => new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" }),
  day: () => new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" }),
  full: () => new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" }),
};

function format(name, value) {
  formats[name] ??= MAKE[name]();
  return formats[name].format(value);
}

function escaped(character) {
  if (character === "\t") return " ";
  const code = character.codePointAt(0);
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  if (code < 0x10000) return `\\u${code.toString(16).padStart(4, "0")}`;
  return `\\U${code.toString(16).padStart(8, "0")}`;
}

/** Returns any value as a text. `String` would throw for an object whose `toString` is not a function. */
function textOf(value) {
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "");
}

/** Returns the first `limit` characters and says how long the text is when there are more. */
export function cut(text, limit = MAX_SHOWN) {
  return text.length > limit ? `${text.slice(0, limit)}… (${count(text.length)} characters)` : text;
}

/** Returns a text on one line, with characters that cannot be seen or that turn the direction as escapes. */
export function printable(text, limit = 500) {
  return cut(textOf(text), limit).replace(HIDDEN_IN_LINE, escaped);
}

/** Returns a text of several lines, with the same characters as escapes. */
export function printableLines(text, limit = MAX_SHOWN) {
  return cut(textOf(text), limit).replace(/\r\n/g, "\n").replace(HIDDEN_IN_LINES, escaped);
}

/** Returns a number with separators; `–` for none. */
export function count(number) {
  return typeof number === "number" ? format("whole", number) : "–";
}

/** Returns a number in a few characters, such as 48.2K. */
export function short(number) {
  return typeof number === "number" ? (number < 10_000 ? format("whole", number) : format("compact", number)) : "–";
}

/** Returns `1 tool`, `2 tools`. */
export function counted(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** Returns a duration that is given in milliseconds. */
export function duration(milliseconds) {
  if (typeof milliseconds !== "number") return "–";
  if (milliseconds < 1000) return `${format("fraction", milliseconds)} ms`;
  return milliseconds < 120_000 ? `${format("fraction", milliseconds / 1000)} s` : `${format("whole", milliseconds / 60_000)} min`;
}

/** Returns {short, full}: a time in the viewer's zone, short when it is less than twelve hours ago. */
export function timeOf(iso) {
  const time = new Date(iso);
  if (Number.isNaN(time.getTime())) return { short: "–", full: "" };
  const recent = Math.abs(Date.now() - time.getTime()) < 12 * 3600_000;
  return { short: format(recent ? "clock" : "day", time), full: format("full", time) };
}

/** Returns whether a text is an address that a browser may open: http and https only. */
export function isWebAddress(text) {
  try {
    return ["http:", "https:"].includes(new URL(text).protocol);
  } catch {
    return false;
  }
}
