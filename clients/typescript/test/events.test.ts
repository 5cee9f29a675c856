// Event streams against a scripted server that cuts connections.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { test } from "node:test";
import { Windlass, WindlassConnectionError, WindlassProblem } from "@windlass/client";
import type { SessionStreamItem, WindlassOptions } from "@windlass/client";
import { packageRoot } from "./support/files.js";
import { cutAfter, serve } from "./support/http.js";

const RECORDED = readFileSync(new URL("test/data/run.sse", packageRoot), "utf8");
const BLOCKS = RECORDED.split("\n\n").filter((block) => block !== "");

/** The number of a block, or the number of the durable event before a live one. */
function numberOf(block: string): number {
  return Number(/"(?:seq|after)":(\d+)/.exec(block)?.[1] ?? 0);
}

/** The stream as a server sends it after this event: live events after it come once more. */
function streamAfter(last: number): string {
  const rest = BLOCKS.filter((block) =>
    block.startsWith("id:") ? numberOf(block) > last : block.startsWith("retry:") || numberOf(block) >= last,
  );
  return rest.map((block) => `${block}\n\n`).join("");
}

/** The event after which the client wants to read on. */
function wantedAfter(request: IncomingMessage): number {
  const query = new URL(request.url ?? "", "http://localhost").searchParams;
  return Number(request.headers["last-event-id"] ?? query.get("after"));
}

function beginStream(response: ServerResponse): void {
  response.writeHead(200, { "content-type": "text/event-stream" });
}

const immediately = { sleep: () => Promise.resolve() };
const DURABLE = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11];

function client(url: string, options: Partial<WindlassOptions> = {}): Windlass {
  return new Windlass({ url, token: "t", ...immediately, ...options });
}

/** Reads the stream to the end of the recorded run. */
async function readRun(windlass: Windlass, after = 1): Promise<{ durable: number[]; live: string[] }> {
  const durable: number[] = [];
  const live: string[] = [];
  for await (const item of windlass.events("s1", { after })) {
    if ("seq" in item) durable.push(item.seq);
    else if ("after" in item && item.kind === "delta") live.push(item.data.text);
    if (item.kind === "run_finished") break;
  }
  return { durable, live };
}

test("a connection that is cut at any byte loses and repeats nothing", async () => {
  const bytes = Buffer.from(streamAfter(1));
  const attempts = new Map<string, number>();
  const server = await serve((request, response) => {
    const name = new URL(request.url ?? "", "http://localhost").pathname.split("/")[3] ?? "";
    const attempt = attempts.get(name) ?? 0;
    attempts.set(name, attempt + 1);
    beginStream(response);
    if (attempt === 0) cutAfter(response, bytes.subarray(0, Number(name)));
    // Sends one durable event again, which the client has to drop.
    else response.end(streamAfter(Math.max(wantedAfter(request) - 1, 1)));
  });
  const windlass = client(server.url);
  const readAll = async (cut: number): Promise<void> => {
    const durable: number[] = [];
    let text = "";
    for await (const item of windlass.events(String(cut), { after: 1 })) {
      if ("seq" in item) durable.push(item.seq);
      else if (item.kind === "delta") text += item.data.text;
      if (item.kind === "run_finished") break;
    }
    assert.deepEqual(durable, DURABLE, `cut at byte ${cut}`);
    assert.equal(text, "Nothing to do here.", `cut at byte ${cut}`);
  };
  const cuts = Array.from({ length: bytes.length + 1 }, (_, at) => at);
  const worker = async (): Promise<void> => {
    for (let cut = cuts.pop(); cut !== undefined; cut = cuts.pop()) await readAll(cut);
  };
  await Promise.all(Array.from({ length: 8 }, worker));
  assert.equal(attempts.size, bytes.length + 1);
  server.close();
});

test("a stream of which each connection delivers only a little comes to its end", async () => {
  let connections = 0;
  const server = await serve((request, response) => {
    connections += 1;
    beginStream(response);
    const rest = Buffer.from(streamAfter(wantedAfter(request)));
    // Most connections end within an event. The live events come again each time, so the part has room for one more event.
    cutAfter(response, rest.subarray(0, 1200 + ((connections * 37) % 200)));
  });
  const { durable, live } = await readRun(client(server.url));
  assert.deepEqual(durable, DURABLE);
  assert.equal(new Set(live).size, live.length);
  assert.ok(connections >= 3, String(connections));
  server.close();
});

test("the requests name the last event and the token", async () => {
  const seen: string[] = [];
  const server = await serve((request, response) => {
    seen.push(`${request.url} ${request.headers["last-event-id"]} ${request.headers.authorization}`);
    beginStream(response);
    if (seen.length === 1) response.end(`${BLOCKS[1]}\n\n`);
    else response.end(streamAfter(wantedAfter(request)));
  });
  await readRun(client(server.url));
  assert.deepEqual(seen, [
    "/v1/sessions/s1/events?after=1 undefined Bearer t",
    "/v1/sessions/s1/events?after=2 2 Bearer t",
  ]);
  server.close();
});

test("waits grow, and are never shorter than the server requests", async () => {
  const waits: number[] = [];
  let connections = 0;
  const server = await serve((request, response) => {
    connections += 1;
    if (connections <= 3) {
      response.writeHead(503, { "content-type": "application/problem+json" });
      response.end(JSON.stringify({ type: "urn:windlass:problem:shutting-down", ...(connections === 2 && { retry_after: 7 }) }));
      return;
    }
    beginStream(response);
    if (connections === 4) response.end("retry: 3000\n\n");
    else response.end(streamAfter(wantedAfter(request)));
  });
  const sleep = (ms: number): Promise<void> => {
    waits.push(ms);
    return Promise.resolve();
  };
  await readRun(client(server.url, { sleep, streamRetries: { firstMs: 100, maxMs: 200 } }));
  const atLeast = [100, 7000, 200, 3000];
  assert.equal(waits.length, atLeast.length);
  atLeast.forEach((ms, at) => {
    const wait = waits[at] ?? 0;
    assert.ok(wait >= ms && wait <= ms * 1.5, `wait ${at}: ${wait}`);
  });
  server.close();
});

test("a server that stays away is an error after a bounded number of attempts", async () => {
  let connections = 0;
  const server = await serve((_, response) => {
    connections += 1;
    response.socket?.destroy();
  });
  const reading = readRun(client(server.url, { streamRetries: { attempts: 5 } }));
  await assert.rejects(reading, (error: unknown) => {
    assert.ok(error instanceof WindlassConnectionError);
    assert.match(error.message, /windlass serve/);
    return true;
  });
  assert.equal(connections, 5);
  server.close();
});

test("a connection without a sign of life is replaced", async () => {
  let connections = 0;
  const server = await serve((request, response) => {
    connections += 1;
    beginStream(response);
    if (connections === 1) response.write(`${BLOCKS[1]}\n\n`);
    else response.end(streamAfter(wantedAfter(request)));
  });
  assert.deepEqual((await readRun(client(server.url, { idleMs: 50 }))).durable, DURABLE);
  assert.equal(connections, 2);
  server.close();
});

test("control events are reported", async () => {
  let connections = 0;
  const server = await serve((request, response) => {
    connections += 1;
    beginStream(response);
    if (connections === 1) {
      assert.match(request.url ?? "", /snapshot=true/);
      const state = JSON.stringify({ id: "s1", last_seq: 6 });
      response.end(`event: snapshot\nid: 6\ndata: ${state}\n\nevent: closing\ndata: {}\n\n`);
    } else {
      assert.doesNotMatch(request.url ?? "", /snapshot/);
      assert.equal(wantedAfter(request), 6);
      const problem = JSON.stringify({ type: "urn:windlass:problem:not-found", detail: "it was deleted" });
      response.end(`event: gap\ndata: {"live_lost":3}\n\nevent: later\ndata: {}\n\nevent: end\ndata: ${problem}\n\n`);
    }
  });
  const items: SessionStreamItem[] = [];
  for await (const item of client(server.url).events("s1", { snapshot: true })) items.push(item);
  assert.deepEqual(
    items.map(({ kind }) => kind),
    ["snapshot", "gap", "end"],
  );
  assert.ok(items[1]?.kind === "gap" && items[1].data.live_lost === 3);
  assert.ok(items[2]?.kind === "end" && items[2].data.detail === "it was deleted");
  server.close();
});

test("the signal ends a stream, also while it waits", async () => {
  for (const at of ["event", "silence", "wait", "start"]) {
    const controller = new AbortController();
    const server = await serve((_, response) => {
      if (at === "wait") return void response.socket?.destroy();
      beginStream(response);
      response.write(`${BLOCKS[1]}\n\n`);
    });
    const sleep = (_: number, signal?: AbortSignal): Promise<void> => {
      controller.abort();
      assert.ok(signal?.aborted);
      return Promise.resolve();
    };
    if (at === "start") controller.abort();
    const stream = client(server.url, { sleep }).events("s1", { signal: controller.signal });
    for await (const item of stream) {
      assert.equal(item.kind, "queued");
      if (at === "event") controller.abort();
      // The next read waits for bytes when the signal comes.
      else setImmediate(() => controller.abort());
    }
    server.close();
  }
});

test("a refusal and a malformed event are errors at once", async () => {
  let connections = 0;
  const server = await serve((request, response) => {
    connections += 1;
    if (request.url?.includes("gone")) {
      response.writeHead(404, { "content-type": "application/problem+json" });
      response.end(JSON.stringify({ type: "urn:windlass:problem:not-found", detail: "no such session", hint: "list them" }));
      return;
    }
    beginStream(response);
    response.end("data: {nonsense\n\n");
  });
  const read = async (session: string): Promise<void> => {
    for await (const _ of client(server.url).events(session));
  };
  await assert.rejects(read("gone"), (error: unknown) => {
    assert.ok(error instanceof WindlassProblem);
    assert.equal(error.hint, "list them");
    return true;
  });
  await assert.rejects(read("s1"), /not JSON/);
  assert.equal(connections, 2);
  server.close();
});

test("the stream of all sessions begins anew with each connection", async () => {
  let connections = 0;
  const server = await serve((request, response) => {
    connections += 1;
    assert.equal(request.url, "/v1/events");
    beginStream(response);
    response.end(`event: snapshot\ndata: {"items":[]}\n\n${BLOCKS[connections]?.replace(/^id.*\n/, "")}\n\n`);
  });
  const kinds: string[] = [];
  for await (const item of client(server.url).events.all()) {
    kinds.push(item.kind);
    if (kinds.length === 4) break;
  }
  assert.deepEqual(kinds, ["snapshot", "queued", "snapshot", "run_started"]);
  server.close();
});
