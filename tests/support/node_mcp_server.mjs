// An MCP server of the TypeScript SDK 2 over Streamable HTTP, without sessions, in both eras.
// node node_mcp_server.mjs FOLDER_OF_THE_PACKAGE_node PORT
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const [folder, port] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(`${folder}/../${path}`));
const { createMcpHandler, McpServer } = await load("server/dist/index.mjs");
const { toNodeHandler } = await load("node/dist/index.mjs");
const { z } = await load("../zod/index.js");

const handler = createMcpHandler(() => {
  const server = new McpServer({ name: "over-http", version: "1" });
  const inputSchema = z.object({ message: z.string() });
  server.registerTool("echo", { description: "Say it again.", inputSchema }, async ({ message }) => ({
    content: [{ type: "text", text: message }],
  }));
  return server;
});
const handle = toNodeHandler(handler);
createServer((request, response) => {
  if (request.url.split("?")[0] === "/mcp") handle(request, response);
  else response.writeHead(404).end();
}).listen(Number(port), "127.0.0.1");
