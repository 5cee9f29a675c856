// Errors that callers of this package receive.

import type { Problem } from "./api.js";

const PREFIX = "urn:windlass:problem:";

/** An operation that the server refused or could not carry out, as problem details (RFC 9457). */
export class WindlassProblem extends Error {
  override readonly name = "WindlassProblem";
  /** A URI that names the kind of problem. */
  readonly type: string;
  /** The kind of problem in a few words. */
  readonly title: string;
  /** The HTTP status. */
  readonly status: number;
  /** The explanation of what happened. */
  readonly detail: string;
  /** The next step for the caller. */
  readonly hint: string | undefined;
  /** Seconds after which a retry can succeed. */
  readonly retryAfter: number | undefined;
  /** All fields of the reply, including those of this kind of problem alone. */
  readonly fields: Problem;

  constructor(fields: Problem) {
    const detail = fields.detail || fields.title || fields.type;
    super(fields.hint ? `${detail} (${fields.hint})` : detail);
    this.type = fields.type;
    this.title = fields.title ?? "";
    this.status = fields.status ?? 0;
    this.detail = detail;
    this.hint = fields.hint ?? undefined;
    this.retryAfter = fields.retry_after ?? undefined;
    this.fields = fields;
  }

  /** The last part of `type`, for example `not-found`; the whole `type` for problems of a proxy. */
  get code(): string {
    return this.type.startsWith(PREFIX) ? this.type.slice(PREFIX.length) : this.type;
  }

  /** Reads the problem of a reply. A proxy may send other errors than the server. */
  static async fromResponse(response: Response): Promise<WindlassProblem> {
    const { status } = response;
    const fields: Problem = {
      type: "about:blank",
      title: response.statusText || `Status ${status}`,
      status,
      detail: `the server replied with status ${status}`,
    };
    const text = await response.text().catch(() => "");
    try {
      const read: unknown = JSON.parse(text);
      if (isObject(read)) {
        for (const name of ["type", "title", "detail"] as const) {
          if (typeof read[name] === "string") fields[name] = read[name];
        }
        for (const [name, value] of Object.entries(read)) {
          if (!(name in fields)) fields[name] = value;
        }
      }
    } catch {
      // The body is not JSON, so the status has to do.
    }
    if (typeof fields.hint !== "string") delete fields.hint;
    const seconds = Number(fields.retry_after ?? response.headers.get("retry-after") ?? Number.NaN);
    if (seconds >= 0) fields.retry_after = seconds;
    else delete fields.retry_after;
    return new WindlassProblem(fields);
  }
}

/** There is no connection to the server, or it ended before the reply was complete. */
export class WindlassConnectionError extends Error {
  override readonly name = "WindlassConnectionError";

  constructor(url: string, cause: unknown) {
    super(`no reply from ${url}: ${reasonOf(cause)}; check that \`windlass serve\` is running there`, { cause });
  }
}

/** The innermost message: `fetch` wraps the reason of a failure. */
function reasonOf(error: unknown): string {
  let reason = error;
  for (let depth = 0; depth < 5 && reason instanceof Error && reason.cause !== undefined; depth++) {
    reason = reason.cause;
  }
  return reason instanceof Error ? reason.message || reason.name : String(reason);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
