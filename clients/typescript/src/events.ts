// Event streams that reconnect by themselves.

import type { Event, Page, Problem, SessionDetail } from "./api.js";
import type { Connection } from "./connection.js";
import { WindlassConnectionError, WindlassProblem } from "./problem.js";
import { delayMs, isTransient } from "./retry.js";
import { SseParser } from "./sse.js";
import type { SseMessage } from "./sse.js";

/** The stream could not keep up: this number of live events was lost. Durable events are never lost. */
export interface GapNotice {
  readonly kind: "gap";
  readonly data: { readonly live_lost: number };
}

/** The state at the beginning of a stream. */
export interface SnapshotNotice<T> {
  readonly kind: "snapshot";
  readonly data: T;
}

/** The server ended the stream, for example because the session was deleted. Nothing follows. */
export interface EndNotice {
  readonly kind: "end";
  readonly data: Problem;
}

/** An item of the stream of one session. */
export type SessionStreamItem = Event | GapNotice | SnapshotNotice<SessionDetail> | EndNotice;

/** An item of the stream of all sessions. */
export type FeedStreamItem = Event | GapNotice | SnapshotNotice<Page> | EndNotice;

export interface FollowOptions {
  /** The number of the last event that the caller has; the default is 0, which gives all events. */
  readonly after?: number | undefined;
  /** Whether live events, such as pieces of an answer, are wanted; the default is true. */
  readonly live?: boolean | undefined;
  /** Begins with a `snapshot` item instead of the events before it. */
  readonly snapshot?: boolean | undefined;
  /** Ends the stream without an error. */
  readonly signal?: AbortSignal | undefined;
}

/** Follows the events of one session. Every durable event arrives once and in order, whatever happens to connections. */
export async function* followSession(
  connection: Connection,
  session: string,
  options: FollowOptions = {},
): AsyncGenerator<SessionStreamItem, void, undefined> {
  const cursor = new SessionCursor(options.after ?? 0);
  const path = (): string => {
    const query = new URLSearchParams({ after: String(cursor.after) });
    if (options.live === false) query.set("live", "false");
    // After a reconnection, the events since the snapshot follow.
    if (options.snapshot === true && !cursor.started) query.set("snapshot", "true");
    return `/v1/sessions/${encodeURIComponent(session)}/events?${query}`;
  };
  const source = {
    path,
    headers: (): Record<string, string> => (cursor.started ? { "last-event-id": String(cursor.after) } : {}),
    read: (message: SseMessage) => cursor.read(message),
  };
  yield* follow<SessionStreamItem>(connection, source, options.signal);
}

/**
 * Follows the events of all sessions. Its events cannot be requested again, so each connection begins with a `snapshot`
 * item: the list of the newest sessions.
 */
export async function* followAll(
  connection: Connection,
  options: { readonly signal?: AbortSignal | undefined } = {},
): AsyncGenerator<FeedStreamItem, void, undefined> {
  const source = {
    path: () => "/v1/events",
    headers: () => ({}),
    read: (message: SseMessage) => readItem<FeedStreamItem>(message),
  };
  yield* follow<FeedStreamItem>(connection, source, options.signal);
}

/** Remembers the delivered events of one session, and drops events that arrive again. */
class SessionCursor {
  /** Whether anything was delivered. */
  started = false;
  /** The position of the last live event. */
  #liveAfter = -1;
  #liveNumber = -1;

  constructor(public after: number) {}

  read(message: SseMessage): SessionStreamItem | undefined {
    const item = readItem<SessionStreamItem>(message);
    if (item === undefined) return undefined;
    if (item.kind === "snapshot") {
      this.after = item.data.last_seq;
    } else if ("seq" in item) {
      if (item.seq <= this.after) return undefined;
      this.after = item.seq;
    } else if ("after" in item) {
      const repeated =
        item.after < this.after ||
        item.after < this.#liveAfter ||
        (item.after === this.#liveAfter && item.n <= this.#liveNumber);
      if (repeated) return undefined;
      [this.#liveAfter, this.#liveNumber] = [item.after, item.n];
    }
    this.started = true;
    return item;
  }
}

/** Reads a message. Control events of later versions are ignored. */
function readItem<T extends SessionStreamItem | FeedStreamItem>({ event, data }: SseMessage): T | undefined {
  if (event === "message") return parse(data) as T;
  if (event !== "gap" && event !== "snapshot" && event !== "end") return undefined;
  return { kind: event, data: parse(data) } as T;
}

/** The server sent an event that is not JSON. A repetition would give the same. */
class MalformedEventError extends Error {}

function parse(data: string): unknown {
  try {
    return JSON.parse(data);
  } catch (cause) {
    throw new MalformedEventError(`the server sent an event that is not JSON: ${data.slice(0, 100)}`, { cause });
  }
}

interface Source<T> {
  path(): string;
  headers(): Record<string, string>;
  /** The item of a message; nothing if it was delivered before. */
  read(message: SseMessage): T | undefined;
}

async function* follow<T extends { readonly kind: string }>(
  connection: Connection,
  source: Source<T>,
  signal: AbortSignal | undefined,
): AsyncGenerator<T, void, undefined> {
  const policy = connection.streamRetries;
  let requestedMs = 0;
  for (let failures = 1; signal?.aborted !== true; failures++) {
    let failure: unknown = new Error("the connection ended");
    let waitMs = 0;
    const attempt = new StreamAttempt(connection, signal);
    try {
      for await (const messages of attempt.messages(source)) {
        // Also a comment is a sign that the server works: an idle stream may be cut for ever.
        failures = 0;
        requestedMs = attempt.retryMs ?? requestedMs;
        for (const message of messages) {
          const item = source.read(message);
          if (item === undefined) continue;
          if (signal?.aborted) return;
          yield item;
          if (item.kind === "end") return;
        }
      }
    } catch (error) {
      if (error instanceof WindlassProblem) {
        if (!isTransient(error.status, error.retryAfter)) throw error;
        waitMs = (error.retryAfter ?? 0) * 1000;
      } else if (error instanceof MalformedEventError) {
        throw error;
      }
      failure = error;
    } finally {
      attempt.close();
    }
    if (signal?.aborted) return;
    if (failures >= policy.attempts) {
      throw failure instanceof WindlassProblem ? failure : new WindlassConnectionError(connection.url, failure);
    }
    // After progress, `failures` is 0: this is the first failure in a row.
    failures = Math.max(failures, 1);
    await connection.sleep(delayMs(policy, failures, Math.max(requestedMs, waitMs)), signal);
  }
}

/** One connection of a stream. */
class StreamAttempt {
  readonly #connection: Connection;
  readonly #closing = new AbortController();
  readonly #outer: AbortSignal | undefined;
  readonly #parser = new SseParser();
  readonly #abort = (): void => this.close();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(connection: Connection, signal: AbortSignal | undefined) {
    this.#connection = connection;
    this.#outer = signal;
    signal?.addEventListener("abort", this.#abort);
  }

  get retryMs(): number | undefined {
    return this.#parser.retryMs;
  }

  async *messages<T>(source: Source<T>): AsyncGenerator<SseMessage[], void, undefined> {
    this.#expectBytes();
    const response = await this.#connection.send({
      method: "GET",
      path: source.path(),
      headers: { accept: "text/event-stream", ...source.headers() },
      signal: this.#closing.signal,
    });
    if (!response.ok) throw await WindlassProblem.fromResponse(response);
    const type = response.headers.get("content-type") ?? "";
    if (!type.startsWith("text/event-stream") || !response.body) {
      throw new Error(`the reply is not an event stream, but ${type || "untyped"}`);
    }
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    for (;;) {
      this.#expectBytes();
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(this.#timer);
      yield this.#parser.push(decoder.decode(value, { stream: true }));
    }
  }

  /** Closes a silent connection: after a sleep of the machine, no error would ever arrive. */
  #expectBytes(): void {
    const { idleMs } = this.#connection;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.close(new Error(`nothing arrived for ${idleMs} ms`)), idleMs);
  }

  close(reason?: Error): void {
    clearTimeout(this.#timer);
    this.#outer?.removeEventListener("abort", this.#abort);
    this.#closing.abort(reason);
  }
}
