// A terminal client: creates or resumes a session, streams its runs, shows tool calls, and asks for approvals.
//
//   node terminal.js [--session ID] [--workspace DIR] [--url URL] [PROMPT ...]
//
// Without a prompt, it reads prompts line by line. Ctrl-C cancels the run; during input it ends the program. With --url,
// the token is read from WINDLASS_TOKEN; the default is the server of this user.

import { stdin, stdout } from "node:process";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { Windlass, WindlassProblem } from "@windlass/client";
import type { Ask, AskAnswer, RunResult, SessionStreamItem } from "@windlass/client";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { session: { type: "string" }, workspace: { type: "string" }, url: { type: "string" } },
});

/** The text without control characters: an agent must not move the cursor or hide a part of a command. */
const clean = (text: string): string => text.replaceAll(/[\p{Cc}\p{Cf}]/gu, (one) => ("\n\t".includes(one) ? one : "?"));
const print = (text: string): void => void stdout.write(clean(text));
const printLine = (text: string): void => print(`${atLineStart ? "" : "\n"}${text}\n`);
/** Whether the last output ended a line; pieces of an answer may end anywhere. */
let atLineStart = true;

const terminal = createInterface({ input: stdin, output: stdout });
let running: AbortController | undefined;
let inputEnded = false;
/** Lines that were typed ahead. They are prompts and never answer an ask. */
const typedAhead: string[] = [];
let receive: ((line: string | undefined) => void) | undefined;
terminal.on("line", (line) => (receive ? receive(line) : typedAhead.push(line)));
terminal.on("SIGINT", () => (running ? running.abort() : terminal.close()));
terminal.on("close", () => {
  inputEnded = true;
  receive?.(undefined);
});

/** Reads a line; nothing if the input ended or the signal is aborted. */
async function readLine(question: string, signal?: AbortSignal): Promise<string | undefined> {
  if (inputEnded || signal?.aborted) return undefined;
  terminal.setPrompt(question);
  terminal.prompt();
  const line = await new Promise<string | undefined>((resolve) => {
    receive = resolve;
    signal?.addEventListener("abort", () => resolve(undefined), { once: true });
  });
  receive = undefined;
  return line;
}

async function answer(ask: Ask, { signal }: { signal: AbortSignal }): Promise<AskAnswer | undefined> {
  const { about } = ask;
  if (about.is === "question") {
    printLine(`the agent asks: ${about.text}`);
    for (const option of about.options ?? []) printLine(`  - ${option}`);
    const text = await readLine("answer> ", signal);
    return text === undefined ? undefined : { answer: "text", text };
  }
  if (about.is === "landing") {
    printLine("approve these changes of your files?");
    for (const [path, reason] of about.paths) printLine(`  ${path}: ${reason}`);
    for (const name of about.failing ?? []) printLine(`  the check ${name} fails, as it did before the run`);
  } else {
    printLine(`approve ${about.call.name}? ${about.reason}`);
    printLine(about.preview ?? JSON.stringify(about.call.args, null, 2));
  }
  const always = about.is === "approval" && about.always ? `, a = always (${clean(about.always)})` : "";
  const word = await readLine(`y = once${always}, anything else = no> `, signal);
  if (word === undefined) return undefined;
  if (word === "y") return "once";
  return word === "a" && always ? "always" : word === "" ? "no" : { answer: "no", note: word };
}

function show(item: SessionStreamItem): void {
  switch (item.kind) {
    case "delta":
      if (item.data.of !== "text" || item.data.text === "") return;
      print(item.data.text);
      atLineStart = item.data.text.endsWith("\n");
      return;
    case "call_started":
      printLine(`* ${item.data.call.name} ${JSON.stringify(item.data.call.args).slice(0, 200)}`);
      break;
    case "call_finished":
      printLine(`  ${item.data.result.error ?? "ok"}, ${item.data.ms} ms`);
      break;
    case "denied":
      printLine(`  denied: ${item.data.reason}`);
      break;
    case "validated":
      printLine(`check ${item.data.validator}: ${item.data.report.judgement}`);
      break;
    case "landed":
      printLine(`landed: ${item.data.files.join(", ")}`);
      break;
    case "warned":
      printLine(`warning: ${item.data.text}`);
      break;
    case "paused":
      printLine(`paused: ${item.data.reason}`);
      break;
    case "gap":
      printLine(`(${item.data.live_lost} pieces of output were lost)`);
      break;
    default:
      return;
  }
  atLineStart = true;
}

function showResult({ outcome, kept, spent }: RunResult): void {
  const detail = "detail" in outcome ? `: ${outcome.detail}` : "";
  printLine(`${outcome.is}${detail} (${spent.steps} steps, $${(spent.cost_micros / 1e6).toFixed(4)})`);
  if (kept) printLine(`the changes were kept as ${kept}`);
  atLineStart = true;
}

const token = process.env["WINDLASS_TOKEN"];
const client = values.url ? new Windlass({ url: values.url, token }) : await Windlass.local();
let session = values.session;

async function runPrompt(prompt: string): Promise<void> {
  running = new AbortController();
  try {
    const where = session ? { session } : { workspace: values.workspace };
    const run = await client.run(prompt, { ...where, onAsk: answer, signal: running.signal });
    if (session !== run.session) printLine(`session ${run.session}`);
    session = run.session;
    for await (const item of run) show(item);
    showResult(await run.result());
  } catch (error) {
    printLine(`error: ${error instanceof Error ? error.message : String(error)}`);
    process.exitCode = error instanceof WindlassProblem ? 1 : 2;
  } finally {
    running = undefined;
  }
}

if (positionals.length > 0) await runPrompt(positionals.join(" "));
else {
  for (let line; (line = typedAhead.shift() ?? (await readLine("> "))) !== undefined; ) {
    if (line.trim() !== "") await runPrompt(line);
  }
}
terminal.close();
