/** What a tool has returned: texts, images, resources, structured content, errors with their codes. */

import { button, fill, h, outward, problem } from "./element.js";
import { jsonBlock, jsonDetails } from "./json_text.js";
import { MAX_SHOWN, count, printable, printableLines } from "./text.js";

const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;
/** Blocks of content that are shown. */
const MAX_BLOCKS = 100;

/** Makes the result of a call: `CallToolResult` as it came. */
export function resultView(result) {
  const facts = result?._meta?.["mcp-hub/error"];
  const blocks = Array.isArray(result?.content) ? result.content : [];
  const failed = result?.isError === true;
  const shown = blocks.slice(0, MAX_BLOCKS).map((block) => blockView(block ?? {}));
  if (failed) shown.unshift(h("p", { class: "failed" }, facts?.code ? h("code", { class: "code" }, facts.code) : null, " The tool reports an error."));
  if (!blocks.length && result?.structuredContent === undefined) shown.push(h("p", { class: "quiet" }, "The result is empty."));
  if (blocks.length > MAX_BLOCKS) shown.push(h("p", { class: "quiet" }, `${count(blocks.length - MAX_BLOCKS)} more blocks are not shown.`));
  if (result?.structuredContent !== undefined) {
    shown.push(h("h4", {}, "Structured content"), jsonBlock(result.structuredContent, "Structured content"));
  }
  shown.push(jsonDetails("The whole result as JSON", result));
  return h("div", { class: failed ? "result is-error" : "result" }, shown);
}

/** Makes the error of a run that has no result. */
export function errorView(error) {
  return problem(error);
}

function blockView(block) {
  if (block.type === "text" && typeof block.text === "string") return textView(block.text);
  if (typeof block.cut === "number") return h("p", { class: "quiet" }, `${printable(block.type ?? "Data", 40)}: ${count(block.cut)} characters of base64, too many to show.`);
  if (block.type === "image" && typeof block.data === "string") return imageView(block.mimeType, block.data);
  if (block.type === "audio" && typeof block.data === "string") return binaryView("Audio", block.mimeType, block.data);
  if (block.type === "resource_link") return resourceView(block);
  if (block.type === "resource" && block.resource && typeof block.resource === "object") {
    const { uri, mimeType, text, blob, cut: size } = block.resource;
    const content =
      typeof size === "number" ? h("p", { class: "quiet" }, `${count(size)} characters of base64, too many to show.`)
      : typeof text === "string" ? textView(text)
      : IMAGES.has(mimeType) && typeof blob === "string" ? imageView(mimeType, blob)
      : typeof blob === "string" ? binaryView("Resource", mimeType, blob)
      : null;
    return h("div", {}, resourceView({ uri, mimeType }), content);
  }
  return jsonBlock(block, "A block of content");
}

/** Makes a text that shows its beginning, and all of it when asked; the hub itself has cut what is longer still. */
function textView(text) {
  const block = h("pre", { class: "text", tabindex: 0, role: "region", "aria-label": "Text" });
  block.textContent = printableLines(text.slice(0, MAX_SHOWN));
  if (text.length <= MAX_SHOWN) return block;
  const place = h("p", { class: "cut" }, `${count(MAX_SHOWN)} of ${count(text.length)} characters. `);
  place.append(
    button("Show the rest", () => {
      block.textContent = printableLines(text, text.length);
      place.remove();
      block.focus();
    }),
  );
  return h("div", {}, block, place);
}

function imageView(type, data) {
  const base64 = unbroken(data);
  if (!IMAGES.has(type) || base64 === null) return binaryView("Image", type, data);
  const image = h("img", { alt: "An image that the tool returned" });
  image.src = `data:${type};base64,${base64}`;
  image.addEventListener("error", () => image.replaceWith(h("p", { class: "quiet" }, "The image cannot be decoded.")), { once: true });
  return h("p", {}, image);
}

function binaryView(what, type, data) {
  const size = Math.floor((data.length * 3) / 4);
  const text = `${what}, ${typeof type === "string" ? printable(type, 80) : "of no stated type"}, ${count(size)} bytes. `;
  const base64 = unbroken(data);
  return h("p", {}, text, base64 === null ? "It is not valid base64." : saving(base64));
}

/** Returns base64 without blanks and line ends; null if the data is no base64. The blanks go first: the pattern takes linear time only without them. */
function unbroken(data) {
  const base64 = data.replace(/\s+/g, "");
  return BASE64.test(base64) && base64.replace(/=/g, "").length % 4 !== 1 ? base64 : null;
}

function bytesOf(base64) {
  const decoded = atob(base64);
  return Uint8Array.from(decoded, (character) => character.charCodeAt(0));
}

/** Makes a button that saves data as a file; its type and its name are ours, never the server's. */
function saving(base64) {
  return button("Save", () => {
    const address = URL.createObjectURL(new Blob([bytesOf(base64)], { type: "application/octet-stream" }));
    const link = h("a", { download: "resource.bin" });
    link.href = address;
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  });
}

function resourceView({ uri, name, title, description, mimeType }) {
  const what = [title ?? name, mimeType].filter((text) => typeof text === "string").join(", ");
  return h(
    "p",
    { class: "resource" },
    typeof uri === "string" ? outward(uri) : null,
    what ? ` ${printable(what)}` : null,
    typeof description === "string" ? h("span", { class: "quiet" }, ` ${printable(description)}`) : null,
  );
}

/** Gives `place` the progress of a run. */
export function drawProgress(place, { progress, total, message }) {
  const bar = h("progress", { "aria-label": "Progress", max: Number.isFinite(total) ? total : null });
  if (Number.isFinite(total) && Number.isFinite(progress)) bar.value = progress;
  const said = typeof total === "number" ? `${count(progress)} of ${count(total)}` : count(progress);
  fill(place, bar, h("span", {}, [said, message ? printable(message) : null].filter(Boolean).join(" · ")));
}
