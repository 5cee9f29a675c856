// A parser of server-sent events, as the HTML standard defines them. It works on text that is cut anywhere.

/** One message of an event stream. */
export interface SseMessage {
  /** The name of the event; `message` if the stream names none. */
  readonly event: string;
  readonly data: string;
  /** The last id of the stream so far. */
  readonly id: string;
}

/** The longest line and the longest message, in characters. A message holds a whole prompt with its images. */
const MAX_LENGTH = 128 << 20;

export class SseParser {
  /** The reconnection time that the server requested last, in milliseconds. */
  retryMs: number | undefined;
  #maxLength: number;
  /** The pieces of the unfinished line. */
  #line: string[] = [];
  #length = 0;
  #afterCarriageReturn = false;
  #atStart = true;
  #event = "";
  #data: string[] = [];
  #id = "";

  constructor(maxLength = MAX_LENGTH) {
    this.#maxLength = maxLength;
  }

  /** Reads the next piece of the stream. An unfinished message at the end of a stream is never returned. */
  push(chunk: string): SseMessage[] {
    const messages: SseMessage[] = [];
    let start = 0;
    if (this.#atStart && chunk !== "") {
      this.#atStart = false;
      if (chunk.startsWith("\uFEFF")) start = 1;
    }
    if (this.#afterCarriageReturn && chunk !== "") {
      this.#afterCarriageReturn = false;
      if (chunk.startsWith("\n")) start = 1;
    }
    const lineEnd = /\r\n?|\n/g;
    lineEnd.lastIndex = start;
    for (let match = lineEnd.exec(chunk); match; match = lineEnd.exec(chunk)) {
      this.#append(chunk.slice(start, match.index));
      const line = this.#line.join("");
      this.#line = [];
      this.#length -= line.length;
      this.#readLine(line, messages);
      start = lineEnd.lastIndex;
      this.#afterCarriageReturn = match[0] === "\r" && start === chunk.length;
    }
    this.#append(chunk.slice(start));
    return messages;
  }

  #append(piece: string): void {
    if (piece === "") return;
    this.#length += piece.length;
    if (this.#length > this.#maxLength) {
      throw new Error(`a message of the event stream is longer than ${this.#maxLength} characters`);
    }
    this.#line.push(piece);
  }

  #readLine(line: string, messages: SseMessage[]): void {
    if (line === "") {
      if (this.#data.length > 0) {
        messages.push({ event: this.#event || "message", data: this.#data.join("\n"), id: this.#id });
      }
      this.#length = 0;
      this.#event = "";
      this.#data = [];
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return; // A comment.
    const field = colon < 0 ? line : line.slice(0, colon);
    const rest = colon < 0 ? "" : line.slice(colon + 1);
    const value = rest.startsWith(" ") ? rest.slice(1) : rest;
    if (field === "data") {
      this.#data.push(value);
      this.#length += value.length;
    } else if (field === "event") {
      this.#event = value;
    } else if (field === "id" && !value.includes("\0")) {
      this.#id = value;
    } else if (field === "retry" && /^\d+$/.test(value)) {
      this.retryMs = Number(value);
    }
  }
}
