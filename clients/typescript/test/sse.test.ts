import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { SseParser } from "@windlass/client";
import type { SseMessage } from "@windlass/client";
import { packageRoot } from "./support/files.js";

/** Decodes and parses these pieces of one stream. */
function parse(pieces: readonly Uint8Array[]): { messages: SseMessage[]; retryMs: number | undefined } {
  const parser = new SseParser();
  const decoder = new TextDecoder();
  const messages = pieces.flatMap((piece) => parser.push(decoder.decode(piece, { stream: true })));
  return { messages, retryMs: parser.retryMs };
}

function check(text: string, expect: SseMessage[], retryMs?: number): void {
  const bytes = new TextEncoder().encode(text);
  const whole = { messages: expect, retryMs };
  assert.deepEqual(parse([bytes]), whole);
  for (let at = 0; at <= bytes.length; at++) {
    assert.deepEqual(parse([bytes.subarray(0, at), bytes.subarray(at)]), whole, `cut at byte ${at}`);
  }
  const single = Array.from(bytes, (_, at) => bytes.subarray(at, at + 1));
  assert.deepEqual(parse(single), whole, "byte by byte");
}

const message = (data: string, event = "message", id = ""): SseMessage => ({ event, data, id });

test("all line ends end a line", () => {
  for (const end of ["\n", "\r\n", "\r"]) {
    const text = ["id: 1", "data: a", "", "event: gap", "data: b", "", ""].join(end);
    check(text, [message("a", "message", "1"), message("b", "gap", "1")]);
  }
  check("data: a\r\n\ndata: b\n\r\n", [message("a"), message("b")]);
});

test("lines of data are joined and one space is removed", () => {
  check("data: a\ndata:b\ndata:  c\ndata\n\n", [message("a\nb\n c\n")]);
});

test("comments, unknown fields and messages without data are ignored", () => {
  check(": still here\n\nevent: closing\n\nnonsense: x\ndata: a\n\n", [message("a")]);
});

test("only a number is a retry", () => {
  check("retry: 2000\n\nretry: soon\n\n", [], 2000);
});

test("an id stays until it changes and has no NUL", () => {
  check("id: 4\ndata: a\n\nid: 5\0\ndata: b\n\nid\ndata: c\n\n", [
    message("a", "message", "4"),
    message("b", "message", "4"),
    message("c"),
  ]);
});

test("characters of several bytes and a byte order mark are read", () => {
  check("\uFEFFdata: gr\u00FC\u00DFe \u{1F680} \uFEFF\n\n", [message("gr\u00FC\u00DFe \u{1F680} \uFEFF")]);
});

test("an unfinished message is not returned", () => {
  check("data: a\n\ndata: b\n", [message("a")]);
  check("data: a\n\ndata: b", [message("a")]);
});

test("a recorded stream gives the same messages with every cut", () => {
  const text = readFileSync(new URL("test/data/run.sse", packageRoot), "utf8");
  const { messages } = parse([new TextEncoder().encode(text)]);
  assert.equal(messages.length, 13);
  check(text, messages, 2000);
});

test("a message that never ends is an error", () => {
  const parser = new SseParser(1000);
  assert.throws(() => {
    for (let lines = 0; lines < 1000; lines++) parser.push("data: 0123456789\n");
  }, /longer than 1000/);
  assert.throws(() => {
    const other = new SseParser(1000);
    for (let pieces = 0; pieces < 1000; pieces++) other.push("0123456789");
  }, /longer than 1000/);
  const small = new SseParser(1000);
  for (let messages = 0; messages < 1000; messages++) small.push("data: 0123456789\n\n");
});
