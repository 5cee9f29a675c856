// Calls against a scripted server: routes, retries, problems, content.

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Windlass, WindlassConnectionError, WindlassProblem } from "@windlass/client";
import type { WindlassOptions } from "@windlass/client";
import { cutAfter, serve } from "./support/http.js";

const JSON_REPLY = { "content-type": "application/json" };

function client(url: string, options: Partial<WindlassOptions> = {}): Windlass {
  return new Windlass({ url, token: "secret", sleep: () => Promise.resolve(), ...options });
}

test("parameters become the path, the query and the body", async () => {
  const seen: string[] = [];
  const server = await serve((request, response, body) => {
    seen.push(`${request.method} ${request.url} ${body}`);
    response.writeHead(200, JSON_REPLY).end("{}");
  });
  const windlass = client(`${server.url}/behind/a/proxy/`);
  await windlass.sessions.list({ limit: 3, state: "idle" });
  await windlass.sessions.list();
  await windlass.sessions.get({ session: "a/b ?" });
  await windlass.call("runs.create", { session: "s1", prompt: "fix it" });
  await windlass.queue.set({ session: "s1", order: [3, 2] });
  await windlass.tokens.revoke({ name: "ci" });
  await windlass.runs.stopAll();
  await windlass.undo({ session: "s1", dry_run: true });
  assert.deepEqual(
    seen.map((line) => line.replace("/behind/a/proxy", "")),
    [
      "GET /v1/sessions?limit=3&state=idle ",
      "GET /v1/sessions ",
      "GET /v1/sessions/a%2Fb%20%3F ",
      'POST /v1/sessions/s1/runs {"prompt":"fix it"}',
      'PUT /v1/sessions/s1/queue {"order":[3,2]}',
      "DELETE /v1/tokens/ci ",
      "POST /v1/stop {}",
      'POST /v1/sessions/s1/undo {"dry_run":true}',
    ],
  );
  for (const session of ["", ".", ".."]) {
    await assert.rejects(windlass.sessions.get({ session }), /needs a `session`/);
  }
  await assert.rejects(windlass.call("toString" as "asks.list", {}), /no operation `toString`/);
  assert.equal(seen.length, 8);
  server.close();
});

/** Fails in this way for the first two requests of each test. */
async function checkRetries(
  fail: (response: ServerResponse, request: IncomingMessage) => void,
  atLeastMs: number,
): Promise<void> {
  const keys: (string | string[] | undefined)[] = [];
  const bodies = new Set<string>();
  const waits: number[] = [];
  const server = await serve((request, response, body) => {
    keys.push(request.headers["idempotency-key"]);
    bodies.add(body);
    if (keys.length <= 2) fail(response, request);
    else response.writeHead(202, JSON_REPLY).end('{"session":"s1","queued":2}');
  });
  const sleep = (ms: number): Promise<void> => {
    waits.push(ms);
    return Promise.resolve();
  };
  const queued = await client(server.url, { sleep, timeoutMs: 500 }).runs.create({ session: "s1", prompt: "fix it" });
  assert.deepEqual(queued, { session: "s1", queued: 2 });
  assert.equal(keys.length, 3);
  assert.equal(new Set(keys).size, 1);
  assert.match(String(keys[0]), /^[0-9a-f-]{36}$/);
  assert.equal(bodies.size, 1);
  assert.equal(waits.length, 2);
  assert.ok(waits.every((wait) => wait >= atLeastMs && wait <= Math.max(atLeastMs * 1.5, 1000)), waits.join());
  server.close();
}

test("a lost connection, a lost reply and a busy server are retried with the same key", async () => {
  await checkRetries((response) => response.socket?.destroy(), 250);
  await checkRetries((response) => cutAfter(response.writeHead(202, JSON_REPLY), '{"session":"s1",'), 250);
  await checkRetries(() => {}, 250); // The attempt reaches its time limit.
  for (const status of [502, 503, 504]) {
    await checkRetries((response) => response.writeHead(status).end("<html>"), 250);
    await checkRetries((response) => response.writeHead(status, { "retry-after": "3" }).end(), 3000);
  }
  const problem = JSON.stringify({ type: "urn:windlass:problem:too-many-requests", retry_after: 1 });
  await checkRetries((response) => response.writeHead(429, JSON_REPLY).end(problem), 1000);
});

test("two calls have two keys, and a read has none", async () => {
  const keys: unknown[] = [];
  const server = await serve((request, response) => {
    keys.push(request.headers["idempotency-key"]);
    response.writeHead(200, JSON_REPLY).end("{}");
  });
  const windlass = client(server.url);
  await windlass.sessions.clear({ session: "s1" });
  await windlass.sessions.clear({ session: "s1" });
  await windlass.sessions.clear({ session: "s1" }, { key: "mine" });
  await windlass.sessions.list();
  assert.notEqual(keys[0], keys[1]);
  assert.deepEqual(keys.slice(2), ["mine", undefined]);
  server.close();
});

test("a refusal is a problem and is not repeated", async () => {
  let requests = 0;
  const server = await serve((_, response) => {
    requests += 1;
    const problem = {
      type: "urn:windlass:problem:conflict",
      title: "The current state does not allow this",
      status: 409,
      detail: "the run waits for an answer",
      hint: "answer it",
      ask: "a1",
    };
    response.writeHead(409, { "content-type": "application/problem+json" }).end(JSON.stringify(problem));
  });
  await assert.rejects(client(server.url).runs.resume({ session: "s1" }), (error: unknown) => {
    assert.ok(error instanceof WindlassProblem);
    assert.equal(error.message, "the run waits for an answer (answer it)");
    assert.equal(error.code, "conflict");
    assert.equal(error.status, 409);
    assert.equal(error.hint, "answer it");
    assert.equal(error.fields["ask"], "a1");
    return true;
  });
  assert.equal(requests, 1);
  server.close();
});

test("errors of a proxy are problems, too", async () => {
  for (const body of ["<html>no</html>", "", "null", "[1]", '{"hint":3,"retry_after":"x"}']) {
    const server = await serve((_, response) => response.writeHead(403).end(body));
    await assert.rejects(client(server.url).sessions.list(), (error: unknown) => {
      assert.ok(error instanceof WindlassProblem);
      assert.deepEqual([error.status, error.code, error.hint], [403, "about:blank", undefined]);
      assert.equal(error.message, "the server replied with status 403");
      return true;
    });
    server.close();
  }
});

test("a server that stays away is an error that names the address and not the token", async () => {
  const server = await serve(() => {});
  server.close();
  await assert.rejects(client(server.url, { callRetries: { attempts: 3 } }).sessions.list(), (error: unknown) => {
    assert.ok(error instanceof WindlassConnectionError);
    assert.match(error.message, /^no reply from http:.*windlass serve/);
    assert.doesNotMatch(error.message, /secret/);
    return true;
  });
});

test("the signal stops waiting for a reply", async () => {
  const controller = new AbortController();
  const server = await serve(() => controller.abort(new Error("enough")));
  await assert.rejects(client(server.url).sessions.list({}, { signal: controller.signal }), /enough/);
  server.close();
});

test("a redirect is not followed, so that no other server gets the token", async () => {
  let followed = false;
  const other = await serve((_, response) => {
    followed = true;
    response.end("{}");
  });
  const server = await serve((_, response) => response.writeHead(307, { location: other.url }).end());
  await assert.rejects(client(server.url, { callRetries: { attempts: 1 } }).sessions.list(), WindlassConnectionError);
  assert.equal(followed, false);
  server.close();
  other.close();
});

test("content has its type, its position and its size", async () => {
  const server = await serve((request, response) => {
    if (request.url?.includes("offset=2")) {
      response.writeHead(206, { "content-type": "text/x-diff", "content-range": "bytes 2-4/9" }).end("cde");
    } else if (request.url?.includes("offset=9")) {
      response.writeHead(206).end("j");
    } else {
      response.writeHead(200, { "content-type": "text/x-diff" }).end("abcdefghi");
    }
  });
  const windlass = client(server.url);
  const read = async (params: { offset?: number; length?: number }): Promise<unknown[]> => {
    const content = await windlass.files.read({ session: "s1", path: "a.txt", ...params });
    return [content.type, new TextDecoder().decode(content.bytes), content.offset, content.total];
  };
  assert.deepEqual(await read({}), ["text/x-diff", "abcdefghi", 0, 9]);
  assert.deepEqual(await read({ offset: 2, length: 3 }), ["text/x-diff", "cde", 2, 9]);
  await assert.rejects(read({ offset: 9 }), /Content-Range/);
  server.close();
});

test("addresses are checked, and the token stays private", () => {
  assert.throws(() => client("ftp://example.com"), /http/);
  assert.throws(() => client("nonsense"), /URL/);
  const windlass = client("http://localhost:8080/");
  assert.equal(windlass.url, "http://localhost:8080");
  assert.doesNotMatch(JSON.stringify(windlass), /secret/);
});

test("the server of this user is found by its files", async () => {
  const before = process.env["XDG_DATA_HOME"];
  const data = mkdtempSync(join(tmpdir(), "windlass-client-"));
  const folder = join(data, "windlass", "server");
  const address = (pid: number): void =>
    writeFileSync(join(folder, "address.json"), JSON.stringify({ url: "http://127.0.0.1:9", pid }));
  process.env["XDG_DATA_HOME"] = data;
  try {
    await assert.rejects(Windlass.local(), /no server runs for this user.*windlass serve/);
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, "token"), "secret\n");
    writeFileSync(join(folder, "address.json"), "{}");
    await assert.rejects(Windlass.local(), /has no address/);
    address(2 ** 30);
    await assert.rejects(Windlass.local(), /is not running any more/);
    address(process.pid);
    assert.equal((await Windlass.local()).url, "http://127.0.0.1:9");
  } finally {
    if (before === undefined) delete process.env["XDG_DATA_HOME"];
    else process.env["XDG_DATA_HOME"] = before;
    rmSync(data, { recursive: true, force: true });
  }
});
