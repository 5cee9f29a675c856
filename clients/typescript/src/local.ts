// Finds the server of this user. The modules of Node are loaded on first use, so that browsers can load this file.

interface NodeModules {
  fs: { readFile(path: string, encoding: "utf8"): Promise<string> };
  os: { homedir(): string };
  path: { join(...parts: string[]): string; isAbsolute(path: string): boolean };
}

interface NodeProcess {
  readonly env: Record<string, string | undefined>;
  kill(pid: number, signal: 0): boolean;
}

export async function readLocalServer(): Promise<{ url: string; token: string }> {
  const { process } = globalThis as { process?: NodeProcess };
  if (!process?.env) {
    throw new Error("Windlass.local() needs Node or Bun; in a browser, use `new Windlass({ url, token })`");
  }
  const { fs, os, path } = await loadNodeModules();
  const xdg = process.env["XDG_DATA_HOME"];
  const data = xdg && path.isAbsolute(xdg) ? xdg : path.join(os.homedir(), ".local", "share");
  const folder = path.join(data, "windlass", "server");
  const advice = "start it with `windlass serve`";
  const read = async (name: string): Promise<string> => {
    const file = path.join(folder, name);
    return fs.readFile(file, "utf8").catch((cause: unknown) => {
      throw new Error(`no server runs for this user: cannot read ${file}; ${advice}`, { cause });
    });
  };
  const address = JSON.parse(await read("address.json")) as { url?: unknown; pid?: unknown };
  if (typeof address.url !== "string" || typeof address.pid !== "number") {
    throw new Error(`${folder}/address.json has no address and process; ${advice}`);
  }
  // After a crash, the file names a port that another program may have by now. It must not get the token.
  if (!isAlive(process, address.pid)) {
    throw new Error(`the server with process ${address.pid} is not running any more; ${advice}`);
  }
  return { url: address.url, token: (await read("token")).trim() };
}

function isAlive(process: NodeProcess, pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as { code?: string }).code === "EPERM";
  }
}

async function loadNodeModules(): Promise<NodeModules> {
  // Names in a variable keep bundlers for browsers from resolving the modules.
  const load = (name: string): Promise<unknown> => import(/* webpackIgnore: true */ /* @vite-ignore */ name);
  const [fs, os, path] = await Promise.all(["node:fs/promises", "node:os", "node:path"].map(load));
  return { fs, os, path } as NodeModules;
}
