// The waits between attempts.

/** How often and when a failed request is repeated. */
export interface RetryPolicy {
  /** The most attempts in a row without success. */
  readonly attempts: number;
  /** The wait before the second attempt in milliseconds; it doubles with every further one. */
  readonly firstMs: number;
  /** The longest wait in milliseconds. */
  readonly maxMs: number;
}

/** Waits, or ends early when the signal is aborted. */
export type Sleep = (ms: number, signal?: AbortSignal) => Promise<void>;

export const CALL_RETRIES: RetryPolicy = { attempts: 8, firstMs: 250, maxMs: 10_000 };
export const STREAM_RETRIES: RetryPolicy = { attempts: 30, firstMs: 500, maxMs: 15_000 };
/** The longest `Retry-After` and `retry:` that are obeyed, in milliseconds. */
export const MAX_REQUESTED_MS = 120_000;

/**
 * The wait after this number of failures in a row. It is never shorter than the server requested, and up to half longer
 * than computed, so that the clients of a server that restarts do not all return at once.
 */
export function delayMs(policy: RetryPolicy, failures: number, requestedMs = 0): number {
  const doubled = policy.firstMs * 2 ** Math.min(failures - 1, 30);
  const base = Math.max(Math.min(doubled, policy.maxMs), Math.min(requestedMs, MAX_REQUESTED_MS));
  return base + (Math.random() * base) / 2;
}

/** Statuses that a repeated request can overcome. */
export function isTransient(status: number, retryAfter: number | undefined): boolean {
  return [502, 503, 504].includes(status) || (status === 429 && retryAfter !== undefined);
}

export const sleep: Sleep = (ms, signal) =>
  new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done);
  });
