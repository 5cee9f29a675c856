// One run from its prompt to its outcome.

import type { Ask, Event, FileChange, ImagePart, Outcome, PromptQueued, RunRequest, RunSummary, Spent } from "./api.js";
import type { Windlass } from "./client.js";
import type { SessionStreamItem } from "./events.js";
import { WindlassProblem } from "./problem.js";
import type { Params } from "./types.js";

/** The answer to an ask: approvals take `once`, `always` or `no`, questions take a text. */
export type AskAnswer = "once" | "always" | "no" | Without<Params<"asks.answer">, "session" | "ask">;

/** `Omit` for each member of a union. */
type Without<T, K extends PropertyKey> = T extends unknown ? Omit<T, K> : never;

/**
 * Answers an ask. `signal` is aborted when the answer is no longer needed, for example because another client answered.
 * Without a returned answer, the ask stays open for other clients.
 */
export type OnAsk = (
  ask: Ask,
  context: { readonly signal: AbortSignal },
) => AskAnswer | undefined | Promise<AskAnswer | undefined>;

export interface RunOptions {
  /** The workspace of a new session; the default is the first root of the server. */
  readonly workspace?: string | undefined;
  /** The session that gets the prompt; the default is a new one. */
  readonly session?: string | undefined;
  readonly images?: ImagePart[] | undefined;
  /** Options of the run, such as `model` or `max_budget_usd`. */
  readonly options?: RunRequest | undefined;
  /** Whether live events, such as pieces of an answer, are wanted; the default is true. */
  readonly live?: boolean | undefined;
  readonly onAsk?: OnAsk | undefined;
  /** Cancels the run on the server. The result then has the outcome `cancelled`. */
  readonly signal?: AbortSignal | undefined;
}

/** The result of a run. */
export interface RunResult {
  readonly session: string;
  /** The id of the run; absent if the prompt was removed from the queue before its run started. */
  readonly run: string | undefined;
  readonly outcome: Outcome;
  /** Changed files, without diffs. */
  readonly files: readonly FileChange[];
  /** The last answer of the model. */
  readonly text: string;
  readonly spent: Spent;
  /** The structured answer, if the run has an output schema. */
  readonly output: unknown;
  /** The name of the kept run, if its changes did not land and were kept. */
  readonly kept: string | undefined;
  /** All details; absent as `run` is. */
  readonly summary: RunSummary | undefined;
}

const NOTHING_SPENT: Spent = {
  iterations: 0,
  steps: 0,
  usage: { input: 0, output: 0 },
  cost_micros: 0,
};

/**
 * A run. Iterate over it for its events, or call `result()` if only the result matters. Asks are answered while one of the
 * two goes on; the run itself does not depend on this client.
 */
export class Run implements AsyncIterable<SessionStreamItem> {
  readonly session: string;
  /** The number of the `queued` event of the prompt. */
  readonly queued: number;
  readonly #client: Windlass;
  readonly #options: RunOptions;
  /** Ends the stream if this client cannot continue. */
  readonly #stop = new AbortController();
  readonly #asks = new Map<string, AbortController>();
  readonly #cancel = (): void => void this.cancel().catch((error: unknown) => this.#stop.abort(error));
  #run: string | undefined;
  #text = "";
  #events: AsyncGenerator<SessionStreamItem, void, undefined> | undefined;
  #result: RunResult | undefined;
  #error: unknown;
  readonly #ended: Promise<void>;
  #end!: () => void;

  private constructor(client: Windlass, { session, queued }: PromptQueued, options: RunOptions) {
    this.#client = client;
    this.session = session;
    this.queued = queued;
    this.#options = options;
    this.#ended = new Promise((resolve) => (this.#end = resolve));
    if (options.signal?.aborted) this.#cancel();
    else options.signal?.addEventListener("abort", this.#cancel, { once: true });
  }

  /** Sends the prompt. It is not aborted on the way, because the run may have started already. */
  static async start(client: Windlass, prompt: string, options: RunOptions): Promise<Run> {
    options.signal?.throwIfAborted();
    const { workspace, session, images = [], options: request = {} } = options;
    const first = { prompt, images, options: request };
    if (session !== undefined) {
      return new Run(client, await client.call("runs.create", { session, ...first }), options);
    }
    const created = await client.call("sessions.create", { ...first, ...(workspace !== undefined && { workspace }) });
    if (!created.queued) throw new Error(`the server created the session ${created.id} without its prompt`);
    return new Run(client, created.queued, options);
  }

  /** Cancels the run and clears the queue of its session. */
  async cancel(): Promise<void> {
    await this.#client.call("runs.cancel", { session: this.session });
  }

  /** Waits for the result. */
  async result(): Promise<RunResult> {
    // Without a reader of the events, read them here.
    if (!this.#events) for await (const _ of this);
    await this.#ended;
    if (this.#error !== undefined) throw this.#error;
    if (!this.#result) throw new Error(`the events of the run in session ${this.session} were not read to its end`);
    return this.#result;
  }

  /** The events of this run until it has finished, and those of its session that belong to no run. */
  [Symbol.asyncIterator](): AsyncGenerator<SessionStreamItem, void, undefined> {
    if (this.#events) throw new Error("the events of this run are being read already");
    this.#events = this.#read();
    return this.#events;
  }

  async *#read(): AsyncGenerator<SessionStreamItem, void, undefined> {
    try {
      const { live } = this.#options;
      const stream = this.#client.events(this.session, { after: this.queued - 1, live, signal: this.#stop.signal });
      for await (const item of stream) {
        if (item.kind === "end") throw new WindlassProblem(item.data);
        if ("session" in item) {
          const shown = this.#concerns(item);
          // The result is known before the last event is delivered, so that its reader may stop there.
          this.#result = this.#observe(item, shown);
          if (shown) yield item;
          if (this.#result) return;
        } else {
          yield item;
        }
      }
      throw this.#stop.signal.reason;
    } catch (error) {
      this.#error = error;
      throw error;
    } finally {
      this.#options.signal?.removeEventListener("abort", this.#cancel);
      for (const ask of this.#asks.values()) ask.abort();
      this.#end();
    }
  }

  /** Whether the event belongs to this run, or to no run. */
  #concerns(event: Event): boolean {
    if (event.kind === "run_started" && event.data.queued === this.queued) this.#run = event.run ?? undefined;
    return !event.run || event.run === this.#run;
  }

  /** Reacts to an event. Returns the result if it is the last one of this run. */
  #observe(event: Event, concerned: boolean): RunResult | undefined {
    if (this.#run === undefined) return this.#isRemoved(event) ? this.#finish(undefined) : undefined;
    if (!concerned) return undefined;
    switch (event.kind) {
      case "said":
        if (event.data.message.role === "assistant") this.#text = textOf(event.data.message.parts) || this.#text;
        return undefined;
      case "asked":
        void this.#answer(event.data.ask);
        return undefined;
      case "answered":
        this.#asks.get(event.data.ask)?.abort();
        return undefined;
      case "run_finished":
        return this.#finish(event.data);
      default:
        return undefined;
    }
  }

  /** Whether the event removes the prompt from the queue. A cancelled run takes the whole queue with it. */
  #isRemoved(event: Event): boolean {
    switch (event.kind) {
      case "queue_changed":
        return !event.data.order.includes(this.queued);
      case "run_finished":
        return event.data.outcome.is === "cancelled";
      default:
        return false;
    }
  }

  #finish(summary: RunSummary | undefined): RunResult {
    return {
      session: this.session,
      run: this.#run,
      outcome: summary?.outcome ?? { is: "cancelled" },
      files: summary?.files ?? [],
      text: this.#text,
      spent: summary?.totals ?? NOTHING_SPENT,
      output: summary?.output,
      kept: summary?.transaction ?? undefined,
      summary,
    };
  }

  async #answer(ask: Ask): Promise<void> {
    const { onAsk } = this.#options;
    if (!onAsk) return;
    const needed = new AbortController();
    this.#asks.set(ask.id, needed);
    try {
      const answer = await onAsk(ask, { signal: needed.signal });
      if (answer === undefined || needed.signal.aborted) return;
      const params = typeof answer === "string" ? { answer } : answer;
      await this.#client.call("asks.answer", { session: this.session, ask: ask.id, ...params });
    } catch (error) {
      const answered = needed.signal.aborted || (error instanceof WindlassProblem && error.code === "not-found");
      // Another client was faster, or the run does not wait any more.
      if (!answered) this.#stop.abort(error);
    } finally {
      this.#asks.delete(ask.id);
    }
  }
}

function textOf(parts: readonly { type: string; data: unknown }[]): string {
  return parts
    .filter((part) => part.type === "text")
    .map((part) => (part.data as { text: string }).text)
    .join("");
}
