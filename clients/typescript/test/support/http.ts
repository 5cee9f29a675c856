// A scripted HTTP server on loopback.

import { createServer } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface ScriptedServer {
  readonly url: string;
  close(): void;
}

/** Serves each request with this function. */
export async function serve(
  answer: (request: IncomingMessage, response: ServerResponse, body: string) => void,
): Promise<ScriptedServer> {
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk: Buffer) => (body += chunk.toString()));
    request.on("end", () => answer(request, response, body));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

/** Sends a part of a reply and then cuts the connection. */
export function cutAfter(response: ServerResponse, part: string | Uint8Array): void {
  response.flushHeaders();
  const cut = (): void => void response.socket?.destroySoon();
  if (part.length === 0) cut();
  else response.write(part, cut);
}
