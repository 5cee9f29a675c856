// The examples of the documentation are parts of examples/quickstart.ts, which is compiled and run.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { packageRoot, repository } from "./support/files.js";

const withoutIndent = (text: string): string => text.replaceAll(/^ +/gm, "");

test("the examples of the documentation are compiled and run", () => {
  const example = withoutIndent(readFileSync(new URL("examples/quickstart.ts", packageRoot), "utf8"));
  for (const page of [new URL("README.md", packageRoot), new URL("docs/typescript.md", repository)]) {
    const blocks = [...readFileSync(page, "utf8").matchAll(/```ts\n(.*?)```/gs)].map(([, code]) => code ?? "");
    assert.ok(blocks.length > 0, page.href);
    for (const block of blocks) assert.ok(example.includes(withoutIndent(block)), `${page.href}:\n${block}`);
  }
});

test("the terminal client stays short", () => {
  const lines = readFileSync(new URL("examples/terminal.ts", packageRoot), "utf8").split("\n");
  assert.ok(lines.length <= 150, String(lines.length));
});

test("the package needs no module of Node", () => {
  // `local.ts` loads them on first use, by a name in a variable.
  const source = ["client", "connection", "events", "index", "local", "operations", "problem", "retry", "run", "sse"];
  for (const name of source) {
    const text = readFileSync(new URL(`src/${name}.ts`, packageRoot), "utf8");
    assert.doesNotMatch(text, /from "node:|import\("|require\(/, name);
  }
  const { dependencies } = JSON.parse(readFileSync(new URL("package.json", packageRoot), "utf8")) as {
    dependencies?: object;
  };
  assert.equal(dependencies, undefined);
});
