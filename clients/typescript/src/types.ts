// The parameters and results of operations, by their names.

import type { operations } from "./api.js";

/** The name of an operation, for example `sessions.list`. */
export type OperationName = keyof operations;

/** The content of a file or a text, or a part of it. */
export interface Content {
  /** The MIME type. */
  readonly type: string;
  readonly bytes: Uint8Array;
  /** The position of the first byte. */
  readonly offset: number;
  /** The size of the whole content in bytes. */
  readonly total: number;
}

/** Options of one call. */
export interface CallOptions {
  /** Stops waiting for the reply. The server may have carried out the operation. */
  readonly signal?: AbortSignal | undefined;
  /** The idempotency key; the default is a new one. Pass the same key to repeat a call of an earlier process. */
  readonly key?: string | undefined;
}

/** An absent part of a request, or one without fields, has no fields. */
type Fields<T> = [T] extends [never] ? unknown : string extends keyof T ? unknown : T;
type Part<O, K extends "query" | "path"> = O extends { parameters: { [P in K]?: infer T } }
  ? Fields<NonNullable<T>>
  : unknown;
type Body<O> = O extends { requestBody?: infer B }
  ? NonNullable<B> extends { content: { "application/json": infer T } }
    ? Fields<T>
    : unknown
  : unknown;
type Simplified<T> = { [K in keyof T]: T[K] };

/** The parameters of an operation: those of its path, its query and its body in one object. */
export type Params<N extends OperationName> = Simplified<
  Part<operations[N], "path"> & Part<operations[N], "query"> & Body<operations[N]>
>;

type Success<N extends OperationName> =
  operations[N]["responses"][keyof operations[N]["responses"] & (200 | 201 | 202)];

/** The result of an operation. */
export type Result<N extends OperationName> =
  Success<N> extends { content: { "application/json": infer T } } ? T : Content;
