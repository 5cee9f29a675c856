// The client of one server.

import { Connection } from "./connection.js";
import type { WindlassOptions } from "./connection.js";
import { followAll, followSession } from "./events.js";
import type { FeedStreamItem, FollowOptions, SessionStreamItem } from "./events.js";
import { readLocalServer } from "./local.js";
import { OPERATIONS } from "./operations.js";
import type { EventsOperations, OperationMethods } from "./operations.js";
import { Run } from "./run.js";
import type { RunOptions } from "./run.js";
import type { CallOptions, Content, OperationName, Params, Result } from "./types.js";

/** Follows the events of a session; `events.list` reads them in pages. */
export interface EventStreams extends EventsOperations {
  /**
   * Follows the events of a session until `signal` is aborted or the session is deleted. The stream reconnects by itself:
   * every durable event arrives once and in order, and no live event twice.
   */
  (session: string, options?: FollowOptions): AsyncGenerator<SessionStreamItem, void, undefined>;
  /** Follows the events of all sessions. Each connection begins with a `snapshot` item, the list of the newest sessions. */
  all(options?: { signal?: AbortSignal }): AsyncGenerator<FeedStreamItem, void, undefined>;
}

// The methods of the operations are defined when a client is constructed.
// eslint-disable-next-line @typescript-eslint/no-unsafe-declaration-merging
export interface Windlass extends OperationMethods {}

/** A client of a Windlass server. It holds no connection: calls and streams open their own. */
export class Windlass {
  readonly events: EventStreams;
  readonly #connection: Connection;

  constructor(options: WindlassOptions) {
    this.#connection = new Connection(options);
    const follow = (session: string, options?: FollowOptions) => followSession(this.#connection, session, options);
    const all = (options?: { signal?: AbortSignal }) => followAll(this.#connection, options);
    const groups: Record<string, object> = { events: Object.assign(follow, { all }) };
    for (const name of Object.keys(OPERATIONS) as OperationName[]) {
      const [group = name, word] = name.split(".");
      const method = (params?: object, options?: CallOptions) => this.call(name, (params ?? {}) as never, options);
      if (word === undefined) groups[group] = method;
      else Object.assign((groups[group] ??= {}), { [camelCase(word)]: method });
    }
    this.events = groups["events"] as EventStreams;
    Object.assign(this, groups);
  }

  /**
   * Connects to the server of this user on this machine, with the address and the token that `windlass serve` wrote. Works
   * in Node and Bun.
   */
  static async local(options: Omit<WindlassOptions, "url" | "token"> = {}): Promise<Windlass> {
    return new Windlass({ ...options, ...(await readLocalServer()) });
  }

  /** The address of the server. */
  get url(): string {
    return this.#connection.url;
  }

  /**
   * Calls an operation by its name. Calls that change something carry an idempotency key, so that a retry after a lost reply
   * has no further effect.
   */
  async call<N extends OperationName>(name: N, params: Params<N>, options: CallOptions = {}): Promise<Result<N>> {
    if (!Object.hasOwn(OPERATIONS, name)) throw new TypeError(`this package knows no operation \`${name}\``);
    const { method, path, json } = OPERATIONS[name];
    const rest: Record<string, unknown> = { ...params };
    const filled = path.replaceAll(/\{(\w+)\}/g, (_, key: string) => {
      const part = pathPart(name, key, rest[key]);
      delete rest[key];
      return part;
    });
    const headers: Record<string, string> = { accept: json ? "application/json" : "*/*" };
    const hasBody = method === "POST" || method === "PUT";
    if (method !== "GET") headers["idempotency-key"] = options.key ?? crypto.randomUUID();
    if (hasBody) headers["content-type"] = "application/json";
    const request = {
      method,
      path: hasBody ? filled : filled + queryOf(rest),
      headers,
      body: hasBody ? JSON.stringify(rest) : undefined,
      signal: options.signal,
    };
    const read = json ? (response: Response) => response.json() as Promise<unknown> : readContent;
    return (await this.#connection.request<unknown>(request, read)) as Result<N>;
  }

  /** Queues a prompt in a new session or in `options.session`, and returns its run as soon as the server has accepted it. */
  run(prompt: string, options: RunOptions = {}): Promise<Run> {
    return Run.start(this, prompt, options);
  }
}

function pathPart(name: string, key: string, value: unknown): string {
  const text = typeof value === "string" || typeof value === "number" ? String(value) : "";
  // A browser or `fetch` would resolve dots, and so call another route.
  if (text === "" || text === "." || text === "..") {
    throw new TypeError(`\`${name}\` needs a \`${key}\`, not ${JSON.stringify(value)}`);
  }
  return encodeURIComponent(text);
}

function queryOf(params: Record<string, unknown>): string {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    if (value !== undefined && value !== null) query.set(key, String(value));
  }
  const text = query.toString();
  return text === "" ? "" : `?${text}`;
}

async function readContent(response: Response): Promise<Content> {
  const bytes = new Uint8Array(await response.arrayBuffer());
  const range = /^bytes (\d+)-\d+\/(\d+)$/.exec(response.headers.get("content-range") ?? "");
  if (!range && response.status === 206) {
    // A browser hides the header from a page of another origin unless the server exposes it.
    throw new Error("the reply is a part of the content, and its position in `Content-Range` cannot be read");
  }
  return {
    type: response.headers.get("content-type") ?? "application/octet-stream",
    bytes,
    offset: range ? Number(range[1]) : 0,
    total: range ? Number(range[2]) : bytes.length,
  };
}

function camelCase(name: string): string {
  return name.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
}
