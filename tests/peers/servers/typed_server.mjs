// Tools with many kinds of zod arguments, on the TypeScript framework that the first argument names.
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(path.join(process.env.NPM, "here.js"));
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const framework = process.argv[2];
const { z } = framework === "sdk1-zod3" ? await load("zod/v3") : await load("zod");
const point = z.object({ x: z.number().int(), y: z.number().default(0), tag: z.string().optional() });
const exact = z.object({ name: z.string().min(1).max(8) }).strict();

const tools = {
  scalars: { text: z.string(), count: z.number().int(), ratio: z.number(), flag: z.boolean() },
  coerced: { count: z.coerce.number().min(1), small: z.coerce.number().int().min(1).max(5).optional() },
  optional: {
    text: z.string().optional(), none: z.string().nullable(), both: z.number().nullish(),
    preset: z.number().default(3),
  },
  chosen: {
    colour: z.enum(["red", "green"]), one: z.literal("only").optional(),
    number: z.union([z.literal(1), z.literal(2)]).optional(),
  },
  lists: { names: z.array(z.string()), few: z.array(z.number()).max(2).optional(), pair: z.tuple([z.number(), z.string()]).optional() },
  objects: { point, exact: exact.optional(), anyOf: z.record(z.string(), z.number()).optional(), loose: z.object({ a: z.string() }).passthrough().optional() },
  unions: {
    either: z.union([z.number(), z.string()]), many: z.union([z.string(), z.array(z.string())]).optional(),
    kind: z.discriminatedUnion("type", [z.object({ type: z.literal("a"), x: z.number() }), z.object({ type: z.literal("b"), y: z.string() })]).optional(),
  },
  prepared: {
    list: z.preprocess((value) => (typeof value === "string" ? value.split(",") : value), z.array(z.string())),
    pipedNumber: z.preprocess((value) => (typeof value === "string" ? Number(value) : value), z.number().min(1)).optional(),
    single: z.preprocess((value) => (Array.isArray(value) ? value : [value]), z.array(z.number())).optional(),
    piped: z.string().transform((text) => text.length).optional(),
  },
  formats: { url: z.string().url().optional(), id: z.string().uuid().optional(), mail: z.string().email().optional(), at: z.string().datetime().optional(), code: z.string().regex(/^[A-Z]{2}$/).optional() },
  bounds: { few: z.number().min(1).max(5), step: z.number().multipleOf(2).optional(), share: z.number().gt(0).lt(1).optional() },
  anything: { any: z.any(), unknown: z.unknown().optional() },
};

const said = (args) => ({ content: [{ type: "text", text: JSON.stringify(args) ?? "" }] });
if (framework === "fastmcp") {
  const { FastMCP } = await load("fastmcp");
  const server = new FastMCP({ name: "typed", version: "1.0.0" });
  for (const [name, shape] of Object.entries(tools))
    server.addTool({ name, description: name, parameters: z.object(shape), execute: async (args) => JSON.stringify(args) });
  await server.start({ transportType: "stdio" });
} else {
  const second = framework === "server2";
  const { McpServer } = await load(second ? "@modelcontextprotocol/server" : "@modelcontextprotocol/sdk/server/mcp.js");
  const { StdioServerTransport } = await load(second ? "@modelcontextprotocol/server/stdio" : "@modelcontextprotocol/sdk/server/stdio.js");
  const server = new McpServer({ name: "typed", version: "1.0.0" });
  for (const [name, shape] of Object.entries(tools))
    server.registerTool(name, { description: name, inputSchema: second ? z.object(shape) : shape }, said);
  await server.connect(new StdioServerTransport());
}
