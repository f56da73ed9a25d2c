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
    options: { transport: option, mode: option, url: option, tool: option, args: option },
  });
  return { ...values, args: JSON.parse(values.args ?? "{}"), command: argv.slice(split + 1) };
}

async function drive(client, talk) {
  try {
    const { protocolVersion, tools, result } = await talk(readOrder());
    const line = { client, protocolVersion: protocolVersion ?? null, tools, result: result ?? null };
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

module.exports = { drive, listAll, installed: createRequire(packages) };
