// The real server with directories of its own.

import { execFileSync, spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

/** The most seconds until the server listens or has stopped. */
const LIMIT_MS = 60_000;

export class WindlassServer {
  readonly folder = realpathSync(mkdtempSync(join(tmpdir(), "windlass-client-")));
  readonly workspace = join(this.folder, "workspace");
  readonly dataHome = join(this.folder, "data");
  readonly #port: number;
  readonly #env: Record<string, string>;
  #process: ChildProcess | undefined;
  #output = "";

  private constructor(
    readonly binary: string,
    modelUrl: string,
    port: number,
  ) {
    this.#port = port;
    const config = join(this.folder, "config", "windlass");
    for (const folder of [config, this.workspace]) mkdirSync(folder, { recursive: true });
    writeFileSync(join(config, "config.toml"), 'model = "anthropic/claude-sonnet-5-5"\n');
    this.#env = {
      PATH: process.env["PATH"] ?? "/usr/bin:/bin",
      HOME: this.folder,
      XDG_CONFIG_HOME: join(this.folder, "config"),
      XDG_DATA_HOME: this.dataHome,
      XDG_STATE_HOME: join(this.folder, "state"),
      XDG_CACHE_HOME: join(this.folder, "cache"),
      ANTHROPIC_BASE_URL: modelUrl,
      ANTHROPIC_API_KEY: "x",
    };
    writeFileSync(join(this.workspace, "greeting.txt"), "hello\n");
    const git = (...args: string[]): void => {
      execFileSync("git", ["-c", "user.name=Test", "-c", "user.email=test@example.com", ...args], {
        cwd: this.workspace,
        env: this.#env,
      });
    };
    git("init", "--quiet");
    git("add", ".");
    git("commit", "--quiet", "--message", "first");
  }

  static async start(binary: string, modelUrl: string): Promise<WindlassServer> {
    const server = new WindlassServer(binary, modelUrl, await freePort());
    await server.start();
    return server;
  }

  /** Starts the server; after a stop again at the same address. */
  async start(): Promise<void> {
    const args = ["serve", "--port", String(this.#port), "--root", this.workspace];
    const started = spawn(this.binary, args, { env: this.#env, cwd: this.workspace, stdio: ["ignore", "ignore", "pipe"] });
    this.#process = started;
    const lines = createInterface({ input: started.stderr });
    const listening = new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`the server does not listen:\n${this.#output}`)), LIMIT_MS);
      started.once("exit", () => reject(new Error(`the server exited:\n${this.#output}`)));
      lines.on("line", (line) => {
        this.#output += `${line}\n`;
        if (!line.startsWith("listening on ")) return;
        clearTimeout(timer);
        resolve();
      });
    });
    await listening;
  }

  /** Stops the server and waits until it has ended. */
  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    const { exitCode, signalCode } = this.#process ?? { exitCode: 0, signalCode: null };
    if (!this.#process || exitCode !== null || signalCode !== null) return;
    const exit = once(this.#process, "exit", { signal: AbortSignal.timeout(LIMIT_MS) });
    this.#process.kill(signal);
    await exit;
  }

  /** The messages of the server, for a test that failed. */
  get output(): string {
    return this.#output;
  }

  async remove(): Promise<void> {
    await this.stop("SIGKILL");
    rmSync(this.folder, { recursive: true, force: true });
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
