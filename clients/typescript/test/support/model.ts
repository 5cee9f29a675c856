// A scripted model that speaks the Messages protocol on loopback.

import { createServer } from "node:http";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";

/** One answer of the model: a text, and perhaps a tool call. */
export interface Turn {
  readonly text: string;
  readonly tool?: { readonly name: string; readonly input: object };
}

/** The answer to the request whose newest message contains this text. */
export type Script = (newest: string) => Turn | Promise<Turn>;

export class ScriptedModel {
  readonly #server: Server;
  #calls = 0;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async start(script: Script): Promise<ScriptedModel> {
    const server = createServer(async (request, response) => {
      let text = "";
      for await (const chunk of request) text += String(chunk);
      const body = JSON.parse(text) as { model: string; messages: unknown[] };
      model.#calls += 1;
      const turn = await script(JSON.stringify(body.messages.at(-1)));
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.end(stream(body.model, turn, model.#calls));
    });
    const model = new ScriptedModel(server);
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return model;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** The number of requests so far. */
  get calls(): number {
    return this.#calls;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

function stream(model: string, turn: Turn, number: number): string {
  let text = "";
  const send = (type: string, fields: object): void => {
    text += `event: ${type}\ndata: ${JSON.stringify({ type, ...fields })}\n\n`;
  };
  send("message_start", {
    message: {
      id: `m${number}`,
      type: "message",
      role: "assistant",
      content: [],
      model,
      stop_reason: null,
      usage: { input_tokens: 10, output_tokens: 1 },
    },
  });
  send("content_block_start", { index: 0, content_block: { type: "text", text: "" } });
  for (const word of turn.text.split(/(?<= )/)) {
    send("content_block_delta", { index: 0, delta: { type: "text_delta", text: word } });
  }
  send("content_block_stop", { index: 0 });
  if (turn.tool) {
    const { name, input } = turn.tool;
    send("content_block_start", { index: 1, content_block: { type: "tool_use", id: `t${number}`, name, input: {} } });
    send("content_block_delta", { index: 1, delta: { type: "input_json_delta", partial_json: JSON.stringify(input) } });
    send("content_block_stop", { index: 1 });
  }
  send("message_delta", { delta: { stop_reason: turn.tool ? "tool_use" : "end_turn" }, usage: { output_tokens: 20 } });
  send("message_stop", {});
  return text;
}
