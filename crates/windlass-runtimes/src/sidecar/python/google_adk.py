"""The Google Agent Development Kit in the sidecar. Every tool is a tool of the engine; the SDK's own toolsets, executors and
persistent services are not used, and its telemetry is off."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.invocation_context import LlmCallsLimitExceededError
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.events import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.google_llm import Gemini
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.adk.tools.base_tool import BaseTool
from google.genai import errors, types

from host import Done, Host, Result, Usage

APP, USER = "windlass", "engine"

# Prefixes with which LiteLLM selects the protocol of a model. It removes the first word again.
PREFIX = {"responses": "openai/responses/", "chat": "openai/", "anthropic": "anthropic/"}

# Finish reasons with which the model, or a filter of the vendor, refuses.
DECLINED = {"SAFETY", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "RECITATION", "IMAGE_SAFETY", "BLOCKED_REASON"}


class HostTool(BaseTool):
    """A tool of the engine."""

    def __init__(self, tool: dict[str, Any], host: Host) -> None:
        super().__init__(name=tool["name"], description=tool["description"])
        self._parameters = tool["parameters"]
        self._host = host

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._parameters
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> dict[str, str]:
        return _response(await self._host.call(tool_context.function_call_id, self.name, args))


class Conversation:
    """The conversation so far, in a session in memory."""

    def __init__(self, history: list[dict[str, Any]]) -> None:
        self._history = history
        self._events: list[Event] = []
        self._begun = False

    async def turn(self, start: dict[str, Any], host: Host) -> Done:
        """Sends the prompt and follows the agents to the end of their answer."""
        agent = _agents(start, host)
        if not self._begun:
            self._events, self._begun = _events(self._history, agent.name), True
        runner = InMemoryRunner(agent=agent, app_name=APP)
        session = await runner.session_service.create_session(app_name=APP, user_id=USER)
        for event in self._events:
            await runner.session_service.append_event(session, event)
        forwarder = EventForwarder(host)
        config = RunConfig(streaming_mode=StreamingMode.SSE, max_llm_calls=start.get("max_turns") or 0)
        prompt = types.Content(role="user", parts=[types.Part(text=start["prompt"])])
        try:
            async for event in runner.run_async(
                user_id=USER, session_id=session.id, new_message=prompt, run_config=config
            ):
                forwarder.handle(event)
        except LlmCallsLimitExceededError:
            return Done("max_turns")
        finally:
            host.emit("usage", **asdict(forwarder.usage))
        if forwarder.end is not None:
            return forwarder.end
        kept = await runner.session_service.get_session(app_name=APP, user_id=USER, session_id=session.id)
        self._events = list(kept.events) if kept else []
        return Done("completed", forwarder.text)


class EventForwarder:
    """Forwards the events of the agents, and remembers how the turn ended."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.text = ""
        self.end: Done | None = None
        self.usage = Usage()

    def handle(self, event: Event) -> None:
        """Handles one event of the runner."""
        parts = (event.content.parts if event.content else None) or []
        answer = "".join(part.text or "" for part in parts if not part.thought)
        thought = "".join(part.text or "" for part in parts if part.thought)
        if event.partial:
            for kind, text in (("reasoning_delta", thought), ("text_delta", answer)):
                if text:
                    self._host.emit(kind, text=text)
            return
        self._count(event)
        for kind, text in (("reasoning", thought), ("message", answer)):
            if text:
                self._host.emit(kind, text=text)
        self.text = answer or self.text
        if event.actions and event.actions.transfer_to_agent:
            self._host.emit("handoff", **{"from": event.author, "to": event.actions.transfer_to_agent})
        self.end = _ended(event, answer)

    def _count(self, event: Event) -> None:
        counted = event.usage_metadata
        if counted is None:
            return
        self.usage.requests += 1
        self.usage.input_tokens += counted.prompt_token_count or 0
        self.usage.output_tokens += counted.candidates_token_count or 0
        self.usage.cached_input_tokens += counted.cached_content_token_count or 0
        self.usage.reasoning_tokens += counted.thoughts_token_count or 0


def failed(error: Exception) -> Done:
    """The end of a turn after an exception of the SDK."""
    kind = type(error).__name__
    if isinstance(error, errors.APIError):
        return Done.error(kind, str(error), model=True, status=error.code)
    # Errors of LiteLLM are those of its HTTP client, with a status.
    if type(error).__module__.startswith(("litellm", "openai", "httpx", "aiohttp")):
        status = getattr(error, "status_code", None)
        return Done.error(kind, str(error), model=True, status=status if isinstance(status, int) else None)
    return Done.error(kind, str(error))


def _ended(event: Event, answer: str) -> Done | None:
    code = event.error_code and getattr(event.error_code, "name", str(event.error_code))
    if not code:
        return None
    words = answer or event.error_message or code
    if code in DECLINED:
        return Done("refused", words)
    # The SDK reports an unparsable call to the model, which can correct it.
    if code == "MALFORMED_FUNCTION_CALL":
        return None
    return Done.error(code, words, model=code != "MAX_TOKENS")


def _response(result: Result) -> dict[str, str]:
    return {"error" if result.is_error else "result": result.content}


def _events(history: list[dict[str, Any]], author: str) -> list[Event]:
    """The conversation as events: consecutive calls are one message, and so are their results."""
    events: list[Event] = []
    last = ""
    for entry in history:
        kind = entry.get("type")
        match kind:
            case "user" | "assistant":
                part = types.Part(text=entry["text"])
            case "tool_call":
                call = types.FunctionCall(id=entry["call_id"], name=entry["name"], args=entry["arguments"])
                part = types.Part(function_call=call)
            case "tool_result":
                response = _response(Result(entry["content"], bool(entry.get("is_error"))))
                answer = types.FunctionResponse(id=entry["call_id"], name=entry["name"], response=response)
                part = types.Part(function_response=answer)
            case _:
                continue
        content = events[-1].content if events and kind == last else None
        if content is not None and content.parts is not None:
            content.parts.append(part)
        else:
            role = "model" if kind in ("assistant", "tool_call") else "user"
            whose = "user" if kind == "user" else author
            events.append(Event(author=whose, content=types.Content(role=role, parts=[part])))
        last = str(kind)
    return events


def _agents(start: dict[str, Any], host: Host) -> LlmAgent:
    """The first agent, with the others below it: it can hand over to each of them, and each of them can hand back."""
    made = [_agent(one, start, host) for one in start["agents"]]
    first, others = made[0], made[1:]
    return LlmAgent(**first, sub_agents=[LlmAgent(**other, disallow_transfer_to_peers=True) for other in others])


def _agent(one: dict[str, Any], start: dict[str, Any], host: Host) -> dict[str, Any]:
    given = start.get("settings") or {}
    config = types.GenerateContentConfig(
        temperature=None if one.get("reasons") else given.get("temperature"), max_output_tokens=given.get("max_output")
    )
    tools = [tool for tool in start["tools"] if one["tools"] is None or tool["name"] in one["tools"]]
    return {
        "name": one["name"],
        "description": one.get("description") or "",
        # A function, because braces in a text would be placeholders of the SDK.
        "instruction": lambda _context, text=one["instructions"]: text,
        "model": _model(start["model"], one["model"]),
        "generate_content_config": config,
        "tools": [HostTool(tool, host) for tool in tools],
    }


def _model(model: dict[str, Any], name: str) -> BaseLlm:
    if model["api"] == "gemini":
        retries = types.HttpRetryOptions(attempts=model.get("max_retries", 1) + 1)
        key = {"api_key": model["api_key"]}
        return Gemini(model=name, base_url=model["base_url"], client_kwargs=key, retry_options=retries)
    # The vendor must not store the conversation.
    more: dict[str, Any] = {"store": False} if model["api"] == "responses" else {}
    return LiteLlm(
        model=PREFIX[model["api"]] + name,
        api_base=model["base_url"],
        api_key=model["api_key"],
        num_retries=model.get("max_retries", 1),
        **more,
    )
