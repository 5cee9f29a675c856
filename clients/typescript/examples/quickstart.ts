// The examples of README.md and docs/typescript.md. A test compares them, and the end-to-end test runs them.

import { Windlass, WindlassProblem } from "@windlass/client";

export async function runPrompt(): Promise<string> {
  const client = await Windlass.local();
  const run = await client.run("write a greeting", {
    options: { max_budget_usd: 1 },
    onAsk: (ask) => (ask.about.is === "question" ? { answer: "text", text: "yes" } : "no"),
  });
  for await (const event of run) {
    if (event.kind === "delta") process.stdout.write(event.data.text);
    if (event.kind === "call_started") console.log("calls", event.data.call.name);
  }
  const { outcome, files } = await run.result();
  console.log(outcome.is, files.map((file) => file.path));
  return run.session;
}

export async function followSession(client: Windlass, session: string, signal: AbortSignal): Promise<number> {
  let last = 0;
  for await (const event of client.events(session, { after: last, signal })) {
    if ("seq" in event) last = event.seq;
    if (event.kind === "gap") console.log("lost", event.data.live_lost, "live events");
  }
  return last;
}

export async function listSessions(client: Windlass): Promise<void> {
  const { items } = await client.sessions.list({ limit: 10 });
  for (const item of items) console.log(item.id, item.state, item.title);
}

export async function cancelAfter(client: Windlass, prompt: string, ms: number): Promise<string> {
  const run = await client.run(prompt, { signal: AbortSignal.timeout(ms) });
  const { outcome } = await run.result();
  return outcome.is;
}

export async function handleProblem(client: Windlass): Promise<void> {
  try {
    await client.sessions.get({ session: "no-such-session" });
  } catch (error) {
    if (!(error instanceof WindlassProblem)) throw error;
    console.log(error.code, error.detail, error.hint);
  }
}
