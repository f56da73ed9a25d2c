/** A form made of a JSON Schema, with the same arguments as JSON as the way out. */

import { button, fill, h } from "./element.js";
import { printable } from "./text.js";

const MAX_FIELDS = 60;
const MAX_DEPTH = 3;
const MAX_CHOICES = 200;
/** Characters of a reference that is followed. */
const MAX_REFERENCE = 1000;
let forms = 0;

const isText = (value) => typeof value === "string";
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
/** What the keywords must be that the form reads. A server may write anything there. */
const KEYWORDS = {
  title: isText,
  description: isText,
  format: isText,
  pattern: isText,
  $ref: (value) => isText(value) && value.startsWith("#/") && value.length <= MAX_REFERENCE,
  type: (value) => isText(value) || (Array.isArray(value) && value.every(isText)),
  maxLength: (value) => typeof value === "number",
  properties: isObject,
  items: isObject,
  required: Array.isArray,
  enum: Array.isArray,
  enumNames: (value) => Array.isArray(value) && value.every(isText),
  anyOf: Array.isArray,
  oneOf: Array.isArray,
};

/** Returns a schema without the keywords that are not what they must be. */
function readable(schema) {
  if (!isObject(schema)) return {};
  return Object.fromEntries(Object.entries(schema).filter(([name, value]) => !Object.hasOwn(KEYWORDS, name) || KEYWORDS[name](value)));
}

/** Returns a value as one text: itself, or its JSON. */
function labelOf(value) {
  return isText(value) ? value : JSON.stringify(value);
}

/** What was typed is not what the schema wants; `field` is the element to go to. */
export class Unreadable extends Error {
  constructor(message, field) {
    super(message);
    this.field = field;
  }
}

/** A form for the properties of one object schema. `read()` returns the object. */
export class SchemaForm {
  #schema;
  #fields = null;
  #text;
  #places;
  #id;

  constructor(schema, label = "Arguments") {
    forms += 1;
    this.#id = `form-${forms}`;
    this.#schema = readable(schema);
    this.#text = h("textarea", { rows: 8, spellcheck: "false", "aria-label": `${label} as JSON`, class: "code-input" });
    this.#places = h("div", { class: "fields" });
    this.element = h("div", { class: "schema-form", role: "group", "aria-label": label });
    if (Object.keys(this.#schema.properties ?? {}).length > MAX_FIELDS) this.#showText({});
    else this.#showFields({});
  }

  /** Returns the object. Throws Unreadable. */
  read() {
    if (this.#fields !== null) return readObject(this.#fields);
    return parsed(this.#text, "an object", (value) => value !== null && typeof value === "object" && !Array.isArray(value));
  }

  #showFields(values) {
    const left = { fields: MAX_FIELDS };
    this.#fields = fieldsOf(this.#schema, this.#schema, values, this.#id, MAX_DEPTH, left);
    const none = h("p", { class: "quiet" }, "It takes no arguments.");
    fill(this.#places, this.#fields.length ? this.#fields.map((field) => field.element) : none);
    const swap = button("Write JSON", () => this.#swap(() => this.#showText(readObject(this.#fields))), { class: "link" });
    fill(this.element, this.#places, swap, h("p", { class: "field-error", role: "alert" }));
  }

  #showText(values) {
    this.#fields = null;
    this.#text.value = JSON.stringify(values, null, 2);
    const swap = button("Use the form", () => this.#swap(() => this.#showFields(this.read())), { class: "link" });
    fill(this.element, this.#text, swap, h("p", { class: "field-error", role: "alert" }));
  }

  #swap(change) {
    try {
      change();
    } catch (error) {
      this.blame(error);
    }
  }

  /** Shows what cannot be read, and goes to its field. */
  blame(error) {
    if (!(error instanceof Unreadable)) throw error;
    for (const field of this.element.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
    fill(this.element.querySelector(".field-error"), error.message);
    error.field.setAttribute("aria-invalid", "true");
    error.field.focus();
  }
}

/** Returns a schema with a local reference followed, and what it is apart from null. */
function resolved(schema, root) {
  let found = readable(schema);
  for (let hop = 0; hop < 8; hop += 1) {
    if (found.$ref !== undefined) {
      const { $ref, ...own } = found;
      let target = root;
      for (const part of $ref.slice(2).split("/")) {
        const name = part.replace(/~1/g, "/").replace(/~0/g, "~");
        target = isObject(target) && Object.hasOwn(target, name) ? target[name] : undefined;
      }
      found = { ...readable(target), ...own };
      continue;
    }
    const choices = found.anyOf ?? found.oneOf;
    if (choices !== undefined) {
      const real = choices.filter((choice) => choice?.type !== "null");
      if (real.length !== 1) return found;
      const { anyOf, oneOf, ...own } = found;
      found = { ...readable(real[0]), ...own };
      continue;
    }
    return found;
  }
  return {};
}

function typeOf(schema) {
  if (Array.isArray(schema.type)) {
    const real = schema.type.filter((type) => type !== "null");
    return real.length === 1 ? real[0] : "any";
  }
  return schema.type ?? (schema.properties ? "object" : "any");
}

function fieldsOf(schema, root, values, id, depth, left) {
  const found = resolved(schema, root);
  const required = new Set(found.required ?? []);
  const fields = [];
  for (const [name, given] of Object.entries(found.properties ?? {})) {
    if (left.fields-- <= 0) break;
    const own = resolved(given, root);
    const field = { name, required: required.has(name), schema: own.items ? { ...own, items: resolved(own.items, root) } : own };
    const value = Object.hasOwn(values ?? {}, name) ? values[name] : field.schema.default;
    fields.push(fieldOf(field, root, value, `${id}-${fields.length}`, depth, left));
  }
  return fields;
}

function fieldOf({ name, required, schema }, root, value, id, depth, left) {
  const type = typeOf(schema);
  const title = printable(schema.title ?? name, 120);
  if (type === "object" && schema.properties && depth > 0) {
    const inner = fieldsOf(schema, root, value, id, depth - 1, left);
    const element = h("fieldset", {}, h("legend", {}, title), inner.map((field) => field.element));
    return {
      name,
      element,
      read: () => {
        const object = readObject(inner);
        return required || Object.keys(object).length ? object : undefined;
      },
    };
  }
  const described = schema.description !== undefined ? `${id}-text` : null;
  const attributes = { id, "aria-describedby": described, "aria-required": required ? "true" : null };
  const { input, read } = inputOf(type, schema, value, attributes, required);
  const isGroup = input.getAttribute("role") === "group";
  if (isGroup) input.setAttribute("aria-labelledby", `${id}-label`);
  const element = h(
    "div",
    { class: "field" },
    h(
      isGroup ? "div" : "label",
      isGroup ? { id: `${id}-label`, class: "label" } : { for: id, class: "label" },
      h("span", { class: "field-name" }, title),
      schema.title && schema.title !== name ? [" ", h("code", {}, printable(name, 120))] : null,
      " ",
      h("span", { class: "field-type" }, `${wordOf(type, schema)}${required ? ", required" : ""}`),
    ),
    input,
    described ? h("p", { id: described, class: "field-text" }, printable(schema.description, 600)) : null,
  );
  return { name, element, read };
}

function wordOf(type, schema) {
  const of = type === "array" && isText(schema.items?.type) ? ` of ${schema.items.type}s` : "";
  const format = schema.format ? `, ${printable(schema.format, 40)}` : "";
  const word = type === "any" ? (choicesOf(type, schema) ? "choice" : "JSON") : printable(type, 40);
  return `${word}${of}${format}`;
}

function inputOf(type, schema, value, attributes, required) {
  const choices = choicesOf(type, schema);
  if (choices !== null) return selectOf(choices, value, attributes, required);
  if (type === "string") {
    const long = !(schema.maxLength <= 120) && !schema.format && !schema.pattern;
    const input = long ? h("textarea", { ...attributes, rows: 1, class: "grows" }) : h("input", { ...attributes, type: "text" });
    input.value = isText(value) ? value : "";
    const read = () => (input.value === "" && !required ? undefined : input.value);
    return { input, read };
  }
  if (type === "number" || type === "integer") {
    const input = h("input", { ...attributes, type: "text", inputmode: "decimal" });
    input.value = typeof value === "number" || isText(value) ? value : "";
    return { input, read: () => readNumber(input, type) };
  }
  const several = type === "array" && schema.items ? choicesOf("any", schema.items) : null;
  if (several !== null) return boxesOf(several, value, attributes, required);
  if (type === "array" && ["string", "number", "integer"].includes(schema.items?.type)) {
    const input = h("textarea", { ...attributes, rows: 3, placeholder: "one to a line" });
    input.value = Array.isArray(value) ? value.map(labelOf).join("\n") : "";
    return { input, read: () => readLines(input, schema.items.type, required) };
  }
  const input = h("textarea", { ...attributes, rows: 3, class: "code-input", spellcheck: "false", placeholder: "JSON" });
  input.value = value === undefined ? "" : JSON.stringify(value, null, 2);
  return { input, read: () => (input.value.trim() === "" ? undefined : parsed(input, "JSON")) };
}

function choicesOf(type, schema) {
  if (type === "boolean") return [["true", true], ["false", false]];
  if (Object.hasOwn(schema, "const")) return [[labelOf(schema.const), schema.const]];
  const titled = schema.oneOf ?? schema.anyOf;
  if (titled?.every((one) => isObject(one) && Object.hasOwn(one, "const"))) return titled.slice(0, MAX_CHOICES).map((one) => [readable(one).title ?? labelOf(one.const), one.const]);
  if (schema.enum === undefined || schema.enum.length > MAX_CHOICES) return null;
  return schema.enum.map((one, at) => [schema.enumNames?.[at] ?? labelOf(one), one]);
}

function selectOf(choices, value, attributes, required) {
  const at = choices.findIndex(([, choice]) => choice === value);
  const none = h("option", { value: "" }, required ? "choose" : "not set");
  const input = h("select", attributes, none, choices.map(([name], index) => h("option", { value: index }, printable(name, 120))));
  input.value = at < 0 ? "" : String(at);
  return { input, read: () => (input.value === "" ? undefined : choices[Number(input.value)][1]) };
}

function boxesOf(choices, value, attributes, required) {
  const chosen = Array.isArray(value) ? value : [];
  const boxes = choices.map(([name, choice]) => {
    const box = h("input", { type: "checkbox" });
    box.checked = chosen.includes(choice);
    return { box, choice, label: h("label", { class: "check" }, box, printable(name, 120)) };
  });
  const input = h("div", { ...attributes, "aria-required": null, class: "boxes", role: "group", tabindex: -1 }, boxes.map(({ label }) => label));
  const read = () => {
    const picked = boxes.filter(({ box }) => box.checked).map(({ choice }) => choice);
    return picked.length || required ? picked : undefined;
  };
  return { input, read };
}

function readNumber(input, type) {
  const text = input.value.trim();
  if (text === "") return undefined;
  const number = Number(text);
  if (!Number.isFinite(number) || (type === "integer" && !Number.isInteger(number))) {
    throw new Unreadable(`Write ${type === "integer" ? "a whole number" : "a number"}, such as 12.`, input);
  }
  return number;
}

function readLines(input, type, required) {
  const lines = input.value.split("\n").filter((line) => line !== "");
  if (!lines.length) return required ? [] : undefined;
  if (type === "string") return lines;
  return lines.map((line) => {
    if (line.trim() === "" || !Number.isFinite(Number(line))) throw new Unreadable("Write one number to a line.", input);
    return Number(line);
  });
}

function parsed(input, what, fits = () => true) {
  try {
    const value = JSON.parse(input.value);
    if (fits(value)) return value;
  } catch {
    // What is wrong is said below: the texts of parsers differ.
  }
  throw new Unreadable(`This is not ${what === "JSON" ? "JSON" : `${what} in JSON`}, such as ${what === "JSON" ? '["a", 1]' : '{"name": "value"}'}.`, input);
}

function readObject(fields) {
  const pairs = fields.map((field) => [field.name, field.read()]).filter(([, value]) => value !== undefined);
  return Object.fromEntries(pairs);
}
