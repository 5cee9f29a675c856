// The client of Windlass for Node, Bun and browsers.

export { Windlass } from "./client.js";
export type { EventStreams } from "./client.js";
export type { WindlassOptions } from "./connection.js";
export type {
  EndNotice,
  FeedStreamItem,
  FollowOptions,
  GapNotice,
  SessionStreamItem,
  SnapshotNotice,
} from "./events.js";
export { WindlassConnectionError, WindlassProblem } from "./problem.js";
export type { RetryPolicy, Sleep } from "./retry.js";
export { Run } from "./run.js";
export type { AskAnswer, OnAsk, RunOptions, RunResult } from "./run.js";
export { SseParser } from "./sse.js";
export type { SseMessage } from "./sse.js";
export type { CallOptions, Content, OperationName, Params, Result } from "./types.js";
export type * from "./operations.js";
export type * from "./api.js";
