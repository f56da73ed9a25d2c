// The TypeScript SDK 1.x: the handshake era.
"use strict";
const { callAll, drive, installed, listAll } = require("./contract.cjs");
const { Client } = installed("@modelcontextprotocol/sdk/client/index.js");
const { SSEClientTransport } = installed("@modelcontextprotocol/sdk/client/sse.js");
const { StdioClientTransport } = installed("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = installed("@modelcontextprotocol/sdk/client/streamableHttp.js");

drive("typescript_sdk1", async ({ transport: kind, url, command, calls }) => {
  const transport =
    kind === "stdio"
      ? new StdioClientTransport({ command: command[0], args: command.slice(1) })
      : new (kind === "sse" ? SSEClientTransport : StreamableHTTPClientTransport)(new URL(url));
  let protocolVersion;
  const told = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (version) => {
    protocolVersion = version;
    told?.(version);
  };
  const client = new Client({ name: "typescript_sdk1", version: "1" });
  await client.connect(transport);
  const tools = await listAll(client);
  const results = await callAll(client, calls);
  await client.close();
  return { protocolVersion, tools, results };
});
