// Runs on the real server, with a scripted model. WINDLASS_BIN names the binary; without it, these tests are skipped.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Windlass, WindlassProblem } from "@windlass/client";
import type { Ask, SessionStreamItem } from "@windlass/client";
import * as quickstart from "../examples/quickstart.js";
import { ScriptedModel } from "./support/model.js";
import type { Turn } from "./support/model.js";
import { WindlassServer } from "./support/windlass.js";

const binary = process.env["WINDLASS_BIN"];
/** The most time of one test. */
const LIMIT = { timeout: 30_000 };

/** Lets the model wait until a test opens it. */
class Gate {
  #open!: () => void;
  #reach!: () => void;
  readonly opened = new Promise<void>((resolve) => (this.#open = resolve));
  readonly reached = new Promise<void>((resolve) => (this.#reach = resolve));

  open(): void {
    this.#open();
  }

  async pass(): Promise<void> {
    this.#reach();
    await this.opened;
  }
}

const gates = new Map<string, Gate>();
const gate = (name: string): Gate => {
  const found = gates.get(name) ?? new Gate();
  gates.set(name, found);
  return found;
};

/** The answers of the model, by words of the newest message. */
async function script(newest: string): Promise<Turn> {
  const held = /hold-(\w+)/.exec(newest);
  if (held) await gate(held[1] ?? "").pass();
  if (newest.includes("tool_result")) return { text: newest.includes("tea") ? "Tea it is." : "The greeting is new." };
  const write = /write (?:a )?(\w+)/.exec(newest);
  if (write) {
    const input = { path: "greeting.txt", content: `${write[1]}\n` };
    return { text: "I will write it. ", tool: { name: "write_file", input } };
  }
  if (newest.includes("which drink")) {
    return { text: "I have to ask. ", tool: { name: "ask_user", input: { question: "tea or coffee?" } } };
  }
  return { text: "Nothing to do." };
}

/** The server frees a session shortly after the last event of its run, and refuses some operations until then. */
async function whenFree<T>(operation: () => Promise<T>): Promise<T> {
  for (let attempts = 1; ; attempts++) {
    try {
      return await operation();
    } catch (error) {
      if (!(error instanceof WindlassProblem && error.code === "conflict") || attempts === 100) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

describe("the real server", { skip: binary ? false : "WINDLASS_BIN is not set" }, () => {
  let model: ScriptedModel;
  let server: WindlassServer;
  let client: Windlass;

  before(async () => {
    model = await ScriptedModel.start(script);
    server = await WindlassServer.start(binary ?? "", model.url);
    process.env["XDG_DATA_HOME"] = server.dataHome;
    client = await Windlass.local({ streamRetries: { firstMs: 20 }, callRetries: { firstMs: 20 } });
  }, LIMIT);

  after(async () => {
    model?.close();
    await server?.remove();
  }, LIMIT);

  const greeting = (): string => readFileSync(join(server.workspace, "greeting.txt"), "utf8");
  const noChecks = { validate: ["none"] };

  /** Checks that each durable event from this one on was delivered once and in order. */
  async function assertAsLogged(session: string, first: number, items: SessionStreamItem[]): Promise<void> {
    const numbers = (some: SessionStreamItem[]): number[] => some.flatMap((item) => ("seq" in item ? [item.seq] : []));
    const delivered = numbers(items);
    const { events } = await client.events.list({ session, after: first - 1, limit: 1000 });
    assert.deepEqual(delivered, numbers(events).slice(0, delivered.length));
  }

  test("a run lands its changes", LIMIT, async () => {
    const run = await client.run("write bonjour", { options: noChecks });
    const kinds: string[] = [];
    let deltas = "";
    for await (const event of run) {
      kinds.push(event.kind);
      if (event.kind === "delta" && event.data.of === "text") deltas += event.data.text;
    }
    const result = await run.result();
    assert.deepEqual(result.outcome, { is: "completed" });
    assert.equal(result.text, "The greeting is new.");
    assert.deepEqual(
      result.files.map(({ path, change }) => [path, change]),
      [["greeting.txt", "modified"]],
    );
    assert.equal(greeting(), "bonjour\n");
    assert.equal(deltas, "I will write it. The greeting is new.");
    assert.equal(result.spent.steps, 2);
    for (const kind of ["run_started", "call_started", "file_changed", "landed", "run_finished"]) {
      assert.ok(kinds.includes(kind), `${kind} in ${kinds.join(" ")}`);
    }
    assert.equal(kinds.at(-1), "run_finished");
    const session = await client.sessions.get({ session: run.session });
    assert.equal(session.state, "idle");
    const page = await client.events.list({ session: run.session, limit: 1000 });
    assert.equal(page.events.at(-1)?.kind, "run_finished");
    const { items } = await client.sessions.list({ limit: 10 });
    assert.ok(items.some((item) => item.id === run.session));
  });

  test("the second prompt of a session is a run of its own", LIMIT, async () => {
    const first = await (await client.run("write hola", { options: noChecks })).result();
    const second = await (await client.run("and now?", { session: first.session })).result();
    assert.equal(second.session, first.session);
    assert.notEqual(second.run, first.run);
    assert.equal(second.text, "Nothing to do.");
    await whenFree(() => client.undo({ session: first.session, run: first.run ?? null }));
    assert.notEqual(greeting(), "hola\n");
  });

  test("the callback answers an ask", LIMIT, async () => {
    const asks: Ask[] = [];
    const run = await client.run("which drink", {
      onAsk: (ask) => {
        asks.push(ask);
        return { answer: "text", text: "tea" };
      },
    });
    const { outcome, text } = await run.result();
    assert.deepEqual(outcome, { is: "completed" });
    assert.equal(text, "Tea it is.");
    assert.equal(asks.length, 1);
    assert.ok(asks[0]?.about.is === "question" && asks[0].about.text === "tea or coffee?");
    assert.deepEqual(await client.asks.list(), []);
  });

  test("another client may answer an ask", LIMIT, async () => {
    let withdrawn = false;
    const run = await client.run("which drink", {
      onAsk: (ask, { signal }) =>
        new Promise((resolve) => {
          signal.addEventListener("abort", () => {
            withdrawn = true;
            resolve(undefined);
          });
          const other = { session: run.session, ask: ask.id, answer: "text", text: "tea" } as const;
          void client.asks.answer(other);
        }),
    });
    assert.equal((await run.result()).text, "Tea it is.");
    assert.ok(withdrawn);
  });

  test("the signal cancels a run", LIMIT, async () => {
    const controller = new AbortController();
    const run = await client.run("hold-cancel please", { signal: controller.signal });
    const result = run.result();
    await gate("cancel").reached;
    controller.abort();
    assert.deepEqual((await result).outcome, { is: "cancelled" });
    gate("cancel").open();
  });

  test("the signal removes a prompt that waits behind another run", LIMIT, async () => {
    const first = await client.run("hold-queue please");
    const firstResult = first.result();
    await gate("queue").reached;
    const controller = new AbortController();
    const second = await client.run("write never", { session: first.session, signal: controller.signal });
    const secondResult = second.result();
    controller.abort();
    const [one, two] = await Promise.all([firstResult, secondResult]);
    gate("queue").open();
    assert.deepEqual(one.outcome, { is: "cancelled" });
    assert.deepEqual(two.outcome, { is: "cancelled" });
    assert.equal(two.run, undefined);
  });

  test("a repeated request with the same key has no further effect", LIMIT, async () => {
    const key = crypto.randomUUID();
    const params = { prompt: "just answer" };
    const [one, two] = await Promise.all([
      client.sessions.create(params, { key }),
      client.sessions.create(params, { key }),
    ]);
    assert.deepEqual(one, two);
    const follow = client.events(one.id, { live: false });
    for await (const event of follow) if (event.kind === "run_finished") break;
    assert.deepEqual(await client.sessions.create(params, { key }), one);
    const { events } = await client.events.list({ session: one.id });
    assert.equal(events.filter(({ kind }) => kind === "queued").length, 1);
    await assert.rejects(client.sessions.create({ prompt: "another" }, { key }), (error: unknown) => {
      assert.ok(error instanceof WindlassProblem);
      assert.equal(error.code, "key-reused");
      return true;
    });
  });

  test("a run and its stream survive a restart of the server", LIMIT, async () => {
    const run = await client.run("hold-restart and write salut", { options: noChecks });
    const events: SessionStreamItem[] = [];
    const reading = (async () => {
      for await (const event of run) events.push(event);
      return run.result();
    })();
    await gate("restart").reached;
    await server.stop();
    gate("restart").open();
    await server.start();
    const result = await reading;
    assert.deepEqual(result.outcome, { is: "completed" });
    assert.equal(greeting(), "salut\n");
    await assertAsLogged(run.session, run.queued, events);
    assert.ok(events.some(({ kind }) => kind === "paused"));
  });

  test("a crash of the server loses and repeats no event", LIMIT, async () => {
    const first = await client.run("hold-crash please");
    const controller = new AbortController();
    const events: SessionStreamItem[] = [];
    const following = (async () => {
      for await (const event of client.events(first.session, { signal: controller.signal })) events.push(event);
    })();
    const firstResult = first.result();
    await gate("crash").reached;
    await server.stop("SIGKILL");
    gate("crash").open();
    await server.start();
    const second = await client.run("and now?", { session: first.session });
    assert.deepEqual((await second.result()).outcome, { is: "completed" });
    // The run is closed as failed, or resumed.
    assert.match((await firstResult).outcome.is, /^(failed|completed)$/);
    controller.abort();
    await following;
    await assertAsLogged(first.session, 1, events);
    assert.equal(events.filter(({ kind }) => kind === "run_started").length, 2);
  });

  test("the stream of a deleted session ends", LIMIT, async () => {
    const { id } = await client.sessions.create({});
    const items: SessionStreamItem[] = [];
    for await (const item of client.events(id)) {
      items.push(item);
      if (item.kind === "session_opened") await client.sessions.delete({ session: id });
    }
    const last = items.at(-1);
    assert.ok(last?.kind === "end" && last.data.status === 404, JSON.stringify(last));
    await assert.rejects(client.sessions.get({ session: id }), { name: "WindlassProblem", status: 404 });
  });

  test("problems say what to do next", LIMIT, async () => {
    const stranger = new Windlass({ url: client.url, token: "wrong" });
    await assert.rejects(stranger.sessions.list(), (error: unknown) => {
      assert.ok(error instanceof WindlassProblem);
      assert.equal(error.code, "unauthorized");
      assert.match(error.hint ?? "", /server\/token/);
      return true;
    });
    await assert.rejects(client.run(" "), { name: "WindlassProblem", status: 400 });
  });

  test("the examples of the documentation work", LIMIT, async (context) => {
    const printed: unknown[][] = [];
    context.mock.method(console, "log", (...values: unknown[]) => printed.push(values));
    // The examples print pieces of answers; the output of the tests stays readable.
    context.mock.method(process.stdout, "write", () => true);
    const session = await quickstart.runPrompt();
    assert.equal(await quickstart.cancelAfter(client, "hold-example please", 500), "cancelled");
    gate("example").open();
    await quickstart.listSessions(client);
    await quickstart.handleProblem(client);
    const { last_seq } = await client.sessions.get({ session });
    const controller = new AbortController();
    const follow = quickstart.followSession(client, session, controller.signal);
    for await (const event of client.events(session)) if ("seq" in event && event.seq === last_seq) break;
    await whenFree(() => client.sessions.delete({ session }));
    await follow;
    context.mock.restoreAll();
    assert.ok(printed.some(([word, tool]) => word === "calls" && tool === "write_file"));
    assert.ok(printed.some(([outcome]) => outcome === "completed"));
    assert.ok(printed.some(([code]) => code === "not-found"));
  });

  test("the terminal client streams, asks and answers", LIMIT, async () => {
    const program = fileURLToPath(new URL("../examples/terminal.js", import.meta.url));
    const terminal = spawn(process.execPath, [program], { stdio: ["pipe", "pipe", "inherit"] });
    let output = "";
    /** The lines that are typed when the screen ends like this. The input ends with the last one. */
    const steps: [RegExp, string][] = [
      [/^> $/, "which drink\n"],
      [/tea or coffee\?[^]*answer> $/, "tea\n"],
      [/ask_user[^]*Tea it is\.[^]*completed[^]*\n> $/, "write hallo\n"],
      [/write_file[^]*landed: greeting\.txt[^]*completed[^]*\n> $/, ""],
    ];
    terminal.stdout.on("data", (chunk: Buffer) => {
      output += chunk.toString();
      const step = steps[0];
      if (!step?.[0].test(output)) return;
      steps.shift();
      if (step[1] !== "") terminal.stdin.write(step[1]);
      else terminal.stdin.end();
    });
    const [code] = (await once(terminal, "exit")) as [number];
    assert.equal(code, 0);
    assert.deepEqual(steps, [], output);
    assert.equal(greeting(), "hallo\n");
  });
});
