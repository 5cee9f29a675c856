"""The sidecar: hosts a Python agent SDK for Windlass, over JSON lines on standard input and output.

It runs inside the enclosure and has no tools, keys or files of its own. Every tool is a proxy for a tool of the engine, and
model requests pass through the meter. docs/sidecar.md describes the protocol.
"""

from __future__ import annotations

import os
import sys

# The real standard output is for the protocol only. Output of libraries goes to standard error from here on.
_OUT = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
os.dup2(2, 1)
# Libraries that search the working directory must not find the repository.
os.chdir(os.environ.get("HOME", "/"))

import asyncio
import importlib
import importlib.metadata
import json
import platform
from typing import Any

from host import MAX_LINE, PROTOCOL, Done, Host

# The SDKs that can be hosted: the package, and the module for it. A module has `Conversation`, with `async turn(start,
# host) -> Done`, and `failed(error) -> Done` for exceptions.
SDKS = {"openai-agents": "openai_agents", "google-adk": "google_adk"}


async def serve(sdk: str) -> None:
    """Reports that it is ready, and runs turns one after the other until the end of the input."""
    module = importlib.import_module(SDKS[sdk])
    host = Host(_OUT)
    lines = asyncio.StreamReader(limit=MAX_LINE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    version = importlib.metadata.version(sdk)
    host.emit("ready", protocol=PROTOCOL, sdk=sdk, sdk_version=version, python=platform.python_version())
    conversation: Any = None
    task: asyncio.Task[None] | None = None
    while line := await lines.readline():
        try:
            message = json.loads(line)
        except ValueError:
            continue
        kind = message.get("type") if isinstance(message, dict) else None
        if kind == "start" and (task is None or task.done()):
            # A history starts a new conversation. Without one, the last conversation continues.
            if conversation is None or message.get("history") is not None:
                conversation = module.Conversation(message.get("history") or [])
            task = asyncio.create_task(run_turn(module, conversation, message, host))
        elif kind == "tool_result":
            host.settle(message)
        elif kind == "cancel" and task is not None:
            task.cancel()
        elif kind == "shutdown":
            break
    if task is not None and not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def run_turn(module: Any, conversation: Any, start: dict[str, Any], host: Host) -> None:
    """Runs one turn, with exactly one `done` at its end."""
    try:
        done = await conversation.turn(start, host)
    except asyncio.CancelledError:
        done = Done("cancelled")
    except Exception as error:  # noqa: BLE001: whatever an SDK raises is how its turn ended
        done = module.failed(error)
    if not host.emit("done", id=start.get("id"), **done.fields()):
        done = Done.error("AnswerTooLong", "the answer is longer than the limit of a line")
        host.emit("done", id=start.get("id"), **done.fields())


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
