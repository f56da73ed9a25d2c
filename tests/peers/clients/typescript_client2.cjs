// The TypeScript client 2.x: as it comes (it shakes hands), or with --mode auto asking for the modern era first.
"use strict";
const { callAll, drive, installed, listAll } = require("./contract.cjs");
const { Client, SSEClientTransport, StreamableHTTPClientTransport } = installed("@modelcontextprotocol/client");
const { StdioClientTransport } = installed("@modelcontextprotocol/client/stdio");

drive("typescript_client2", async ({ transport: kind, mode, url, command, calls }) => {
  const transport =
    kind === "stdio"
      ? new StdioClientTransport({ command: command[0], args: command.slice(1) })
      : new (kind === "sse" ? SSEClientTransport : StreamableHTTPClientTransport)(new URL(url));
  const options = mode === undefined ? {} : { versionNegotiation: { mode } };
  const client = new Client({ name: "typescript_client2", version: "1" }, options);
  await client.connect(transport);
  const tools = await listAll(client);
  const results = await callAll(client, calls);
  const protocolVersion = client.getNegotiatedProtocolVersion();
  await client.close();
  return { protocolVersion, tools, results };
});
