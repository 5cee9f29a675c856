"""The engine, as the SDKs' modules see it: what is said to it, and the calls that it runs for them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any, TextIO

PROTOCOL = 1
# The longest line, either way.
MAX_LINE = 16 * 2**20
# Characters of an error's words.
MAX_WORDS = 2_000


@dataclass
class Result:
    """What came of a call. A denial is one, too."""

    content: str
    is_error: bool


@dataclass
class Done:
    """How a turn ended: completed, cancelled, max_turns, refused or error."""

    status: str
    output: Any = None
    problem: dict[str, Any] | None = None

    @classmethod
    def error(cls, kind: str, message: str, *, model: bool = False, status: int | None = None) -> Done:
        """An error; `model` says that the model could not be had, with the HTTP status of its answer."""
        words = message[:MAX_WORDS]
        return cls("error", None, {"kind": kind, "message": words, "model": model, "status": status})

    def fields(self) -> dict[str, Any]:
        """As fields of the `done` line."""
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
        """Says a line, unless it is longer than a line may be."""
        line = json.dumps({"type": kind, **fields}, ensure_ascii=False, default=str) + "\n"
        # Half a character of a pair cannot be written, and means nothing to anybody.
        data = line.encode("utf-8", "replace").decode("utf-8")
        if len(data.encode("utf-8")) > MAX_LINE:
            return False
        self._out.write(data)
        self._out.flush()
        return True

    async def call(self, call_id: str, name: str, arguments: str | dict[str, Any] | None) -> Result:
        """Has the engine run a tool, and waits for what came of it. Arguments that are no JSON go as they are."""
        # What was said before the call is told before it.
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
            return Result("there is an open call with this id", True)
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._open[call_id] = answer
        try:
            if not self.emit("tool_call", **fields):
                return Result("the arguments are too long; say less in one call", True)
            return await answer
        finally:
            self._open.pop(call_id, None)

    def settle(self, message: dict[str, Any]) -> None:
        """Takes the result of a call. One that nobody waits for is passed over."""
        answer = self._open.get(str(message.get("call_id")))
        if answer is not None and not answer.done():
            answer.set_result(Result(str(message.get("content", "")), bool(message.get("is_error"))))


@dataclass
class Usage:
    """What a turn took, in tokens; input includes what came from a cache."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    reasoning_tokens: int = 0
