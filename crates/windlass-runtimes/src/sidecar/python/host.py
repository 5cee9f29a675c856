"""The engine, from the view of the SDK modules: messages to it, and the calls that it runs."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any, TextIO

PROTOCOL = 1
# Bytes of the longest line in both directions.
MAX_LINE = 16 * 2**20
# Characters of an error message.
MAX_WORDS = 2_000


@dataclass
class Result:
    """The result of a call, which may be a denial."""

    content: str
    is_error: bool


@dataclass
class Done:
    """The end of a turn: completed, cancelled, max_turns, refused or error."""

    status: str
    output: Any = None
    problem: dict[str, Any] | None = None

    @classmethod
    def error(cls, kind: str, message: str, *, model: bool = False, status: int | None = None) -> Done:
        """An error. `model` tells whether a model request failed, with the HTTP status of the response."""
        words = message[:MAX_WORDS]
        return cls("error", None, {"kind": kind, "message": words, "model": model, "status": status})

    def fields(self) -> dict[str, Any]:
        """The fields of the `done` line."""
        fields: dict[str, Any] = {"status": self.status, "output": self.output}
        if self.problem is not None:
            fields["error"] = self.problem
        return fields


class Host:
    """The engine at the other end of the pipe."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._open: dict[str, asyncio.Future[Result]] = {}

    def emit(self, kind: str, **fields: Any) -> bool:
        """Writes a line. Returns false if it is longer than the limit."""
        line = json.dumps({"type": kind, **fields}, ensure_ascii=False, default=str) + "\n"
        # An unpaired surrogate cannot be encoded and is replaced.
        data = line.encode("utf-8", "replace").decode("utf-8")
        if len(data.encode("utf-8")) > MAX_LINE:
            return False
        self._out.write(data)
        self._out.flush()
        return True

    async def call(self, call_id: str, name: str, arguments: str | dict[str, Any] | None) -> Result:
        """Lets the engine run a tool, and waits for the result. Arguments that are not JSON are sent unchanged."""
        # Text before the call must be sent before it.
        await asyncio.sleep(0)
        fields: dict[str, Any] = {"call_id": call_id, "name": name}
        try:
            parsed = json.loads(arguments or "{}") if not isinstance(arguments, dict) else arguments
        except ValueError:
            parsed = None
        if isinstance(parsed, dict):
            fields["arguments"] = parsed
        else:
            fields.update(arguments={}, malformed=str(arguments))
        if call_id in self._open:
            return Result("another call with this id is still open", True)
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._open[call_id] = answer
        try:
            if not self.emit("tool_call", **fields):
                return Result("the arguments are too long; use less text in one call", True)
            return await answer
        finally:
            self._open.pop(call_id, None)

    def settle(self, message: dict[str, Any]) -> None:
        """Handles the result of a call. A result without an open call is ignored."""
        answer = self._open.get(str(message.get("call_id")))
        if answer is not None and not answer.done():
            answer.set_result(Result(str(message.get("content", "")), bool(message.get("is_error"))))


@dataclass
class Usage:
    """The tokens of a turn. Input includes cached tokens."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    reasoning_tokens: int = 0
