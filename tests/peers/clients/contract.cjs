// What contract.py says, for the drivers that run on Node.
"use strict";
const { createRequire } = require("node:module");
const path = require("node:path");
const { parseArgs } = require("node:util");

const packages = path.resolve(__dirname, "../../../.peers/node/package.json");

function readOrder() {
  const argv = process.argv.slice(2);
  const split = argv.includes("--") ? argv.indexOf("--") : argv.length;
  const option = { type: "string" };
  const { values } = parseArgs({
    args: argv.slice(0, split),
    options: { transport: option, mode: option, url: option, tool: { ...option, multiple: true }, args: { ...option, multiple: true } },
  });
  const calls = (values.tool ?? []).map((name, index) => ({ name, arguments: JSON.parse(values.args[index]) }));
  return { ...values, calls, command: argv.slice(split + 1) };
}

async function drive(client, talk) {
  try {
    const { protocolVersion, tools, results } = await talk(readOrder());
    const line = { client, protocolVersion: protocolVersion ?? null, tools, result: results[0] ?? null, results };
    process.stdout.write(JSON.stringify(line) + "\n", () => process.exit(0));
  } catch (error) {
    process.stderr.write(`${error?.stack ?? error}\n`, () => process.exit(1));
  }
}

async function listAll(client) {
  const names = [];
  let cursor;
  do {
    const page = await client.listTools(cursor === undefined ? {} : { cursor });
    names.push(...page.tools.map((tool) => tool.name));
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return names;
}

async function callAll(client, calls) {
  const results = [];
  for (const call of calls) results.push(await client.callTool(call));
  return results;
}

module.exports = { callAll, drive, listAll, installed: createRequire(packages) };
