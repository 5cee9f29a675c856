// Requests to one server: addresses, tokens, retries and time limits.

import { WindlassConnectionError, WindlassProblem } from "./problem.js";
import { CALL_RETRIES, STREAM_RETRIES, delayMs, isTransient, sleep } from "./retry.js";
import type { RetryPolicy, Sleep } from "./retry.js";

export interface WindlassOptions {
  /** The address of the server, for example `http://127.0.0.1:8080`. */
  readonly url: string | URL;
  /** The token. A page of the server itself needs none, because its cookie is sent. */
  readonly token?: string | undefined;
  /** The time limit of one attempt of a call in milliseconds; the default is two minutes. Event streams have no limit. */
  readonly timeoutMs?: number | undefined;
  /** The silence after which an event stream reconnects, in milliseconds; the default is 45 seconds. The server sends a comment every 15 seconds. */
  readonly idleMs?: number | undefined;
  /** Retries of calls. */
  readonly callRetries?: Partial<RetryPolicy> | undefined;
  /** Reconnections of event streams. Progress resets the count of attempts. */
  readonly streamRetries?: Partial<RetryPolicy> | undefined;
  /** Replaces the global `fetch`. */
  readonly fetch?: typeof fetch | undefined;
  /** Replaces the waits between attempts, for tests. */
  readonly sleep?: Sleep | undefined;
}

/** One request, without the address of the server. */
export interface ServerRequest {
  readonly method: string;
  /** The path with its query. */
  readonly path: string;
  readonly headers?: Record<string, string> | undefined;
  readonly body?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

export class Connection {
  readonly url: string;
  readonly idleMs: number;
  readonly streamRetries: RetryPolicy;
  readonly sleep: Sleep;
  readonly #token: string | undefined;
  readonly #timeoutMs: number;
  readonly #callRetries: RetryPolicy;
  readonly #fetch: typeof fetch;

  constructor(options: WindlassOptions) {
    const url = new URL(options.url);
    if (url.protocol !== "http:" && url.protocol !== "https:") {
      throw new TypeError(`the address of a server begins with http:// or https://, not ${url.protocol}`);
    }
    this.url = `${url.origin}${url.pathname.replace(/\/+$/, "")}`;
    this.#token = options.token;
    this.#timeoutMs = options.timeoutMs ?? 120_000;
    this.idleMs = options.idleMs ?? 45_000;
    this.#callRetries = { ...CALL_RETRIES, ...options.callRetries };
    this.streamRetries = { ...STREAM_RETRIES, ...options.streamRetries };
    this.#fetch = options.fetch ?? ((input, init) => fetch(input, init));
    this.sleep = options.sleep ?? sleep;
  }

  /** Sends a request once. */
  send(request: ServerRequest): Promise<Response> {
    const headers = new Headers(request.headers);
    if (this.#token !== undefined) headers.set("authorization", `Bearer ${this.#token}`);
    return this.#fetch(`${this.url}${request.path}`, {
      method: request.method,
      headers,
      // A redirect could send the token to another server.
      redirect: "error",
      cache: "no-store",
      ...(request.body !== undefined && { body: request.body }),
      ...(request.signal && { signal: request.signal }),
    });
  }

  /**
   * Sends a request and reads its reply, again and again while the connection or the server fails. A request that changes
   * something needs an idempotency key in its headers.
   */
  async request<T>(request: ServerRequest, read: (response: Response) => Promise<T>): Promise<T> {
    const { signal } = request;
    for (let failures = 1; ; failures++) {
      signal?.throwIfAborted();
      let error: WindlassProblem | WindlassConnectionError;
      try {
        const timeout = AbortSignal.timeout(this.#timeoutMs);
        const limits = signal ? AbortSignal.any([signal, timeout]) : timeout;
        const response = await this.send({ ...request, signal: limits });
        if (response.ok) return await read(response);
        error = await WindlassProblem.fromResponse(response);
        if (!isTransient(error.status, error.retryAfter)) throw error;
      } catch (cause) {
        signal?.throwIfAborted();
        if (cause instanceof WindlassProblem) throw cause;
        error = new WindlassConnectionError(this.url, cause);
      }
      if (failures >= this.#callRetries.attempts) throw error;
      const seconds = error instanceof WindlassProblem ? error.retryAfter : undefined;
      await this.sleep(delayMs(this.#callRetries, failures, (seconds ?? 0) * 1000), signal);
    }
  }
}
