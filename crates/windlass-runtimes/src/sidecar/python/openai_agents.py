"""The OpenAI Agents SDK in the sidecar. Tracing is off, every tool is a tool of the engine, and the SDK's own tools,
sandboxes and sessions are not used."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from agents import (
    Agent,
    AgentOutputSchemaBase,
    FunctionTool,
    Model,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    set_tracing_disabled,
)
from agents.exceptions import MaxTurnsExceeded, ModelRefusalError
from agents.result import RunResultStreaming
from openai import APIConnectionError, APIError, APIStatusError, AsyncOpenAI
from openai.types.shared import Reasoning

from host import Done, Host, Usage

set_tracing_disabled(True)


class Schema(AgentOutputSchemaBase):
    """The schema of the answer. The engine checks the answer, and asks again if it does not match."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self._schema: dict[str, Any] = wanted["schema"]
        self._strict = bool(wanted.get("strict"))

    def is_plain_text(self) -> bool:
        return False

    def name(self) -> str:
        return "answer"

    def json_schema(self) -> dict[str, Any]:
        return self._schema

    def is_strict_json_schema(self) -> bool:
        return self._strict

    def validate_json(self, json_str: str) -> Any:
        try:
            return json.loads(json_str)
        except ValueError:
            return json_str


class Conversation:
    """The conversation so far, and the current agent."""

    def __init__(self, history: list[dict[str, Any]]) -> None:
        self._items: list[Any] = [item for entry in history for item in _item(entry)]
        self._agent: str | None = None

    async def turn(self, start: dict[str, Any], host: Host) -> Done:
        """Sends the prompt and follows the agents to the end of their answer."""
        agents = _agents(start, host)
        first = agents.get(self._agent or "") or next(iter(agents.values()))
        messages = [*self._items, {"role": "user", "content": start["prompt"]}]
        result = Runner.run_streamed(
            first,
            messages,
            max_turns=start.get("max_turns"),
            run_config=RunConfig(tracing_disabled=True, tool_not_found_behavior="return_error_to_model"),
        )
        try:
            async for event in result.stream_events():
                _forward(event, host)
        except MaxTurnsExceeded:
            return Done("max_turns")
        except ModelRefusalError as error:
            return Done("refused", error.refusal)
        finally:
            # A turn that was aborted still has background work.
            if not result.is_complete:
                result.cancel()
            host.emit("usage", **asdict(_usage(result)))
        self._items = result.to_input_list(mode="normalized")
        self._agent = result.last_agent.name
        return Done("completed", result.final_output)


def failed(error: Exception) -> Done:
    """The end of a turn after an exception of the SDK."""
    kind = type(error).__name__
    if isinstance(error, APIStatusError):
        return Done.error(kind, str(error), model=True, status=error.status_code)
    if isinstance(error, APIConnectionError | APIError):
        return Done.error(kind, str(error), model=True)
    return Done.error(kind, str(error))


def _item(entry: dict[str, Any]) -> list[dict[str, Any]]:
    match entry.get("type"):
        case "user" | "assistant" as role:
            return [{"role": role, "content": entry["text"]}]
        case "tool_call":
            arguments = json.dumps(entry["arguments"])
            call = {"call_id": entry["call_id"], "name": entry["name"], "arguments": arguments}
            return [{"type": "function_call", **call}]
        case "tool_result":
            return [{"type": "function_call_output", "call_id": entry["call_id"], "output": entry["content"]}]
        case _:
            return []


def _agents(start: dict[str, Any], host: Host) -> dict[str, Agent[Any]]:
    """The agents by name. The first can hand over to each of the others, and each of them can hand back."""
    model = start["model"]
    client = AsyncOpenAI(
        base_url=model["base_url"], api_key=model["api_key"], max_retries=model.get("max_retries", 1)
    )
    wanted = start.get("output_schema")
    agents: dict[str, Agent[Any]] = {}
    for one in start["agents"]:
        agents[one["name"]] = Agent(
            name=one["name"],
            handoff_description=one.get("description"),
            instructions=one["instructions"],
            model=_model(model["api"], one["model"], client),
            model_settings=_settings(start.get("settings") or {}, one, responses=model["api"] == "responses"),
            tools=[_tool(tool, host) for tool in start["tools"] if one["tools"] is None or tool["name"] in one["tools"]],
            output_type=Schema(wanted) if wanted else None,
        )
    first, *others = agents.values()
    first.handoffs = list(others)
    for other in others:
        other.handoffs = [first]
    return agents


def _model(api: str, name: str, client: AsyncOpenAI) -> Model:
    return (OpenAIResponsesModel if api == "responses" else OpenAIChatCompletionsModel)(name, client)


def _settings(given: dict[str, Any], agent: dict[str, Any], *, responses: bool) -> ModelSettings:
    reasons = bool(agent.get("reasons"))
    effort = given.get("effort")
    return ModelSettings(
        # Reasoning models do not accept a temperature.
        temperature=None if reasons else given.get("temperature"),
        max_tokens=given.get("max_output"),
        parallel_tool_calls=given.get("parallel_tool_calls"),
        reasoning=Reasoning(effort=effort) if effort else None,
        include_usage=True,
        # The vendor must not store the conversation. The reasoning is returned in encrypted form, and is sent with the
        # next request.
        store=False if responses else None,
        response_include=["reasoning.encrypted_content"] if responses and reasons else None,
    )


def _tool(tool: dict[str, Any], host: Host) -> FunctionTool:
    name = tool["name"]

    async def invoke(context: Any, arguments: str) -> str:
        return (await host.call(context.tool_call_id, name, arguments)).content

    return FunctionTool(
        name=name,
        description=tool["description"],
        params_json_schema=tool["parameters"],
        on_invoke_tool=invoke,
        strict_json_schema=False,
    )


def _forward(event: Any, host: Host) -> None:
    if event.type == "raw_response_event":
        match event.data.type:
            case "response.output_text.delta":
                host.emit("text_delta", text=event.data.delta)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                host.emit("reasoning_delta", text=event.data.delta)
    elif event.type == "run_item_stream_event":
        item = event.item
        match event.name:
            case "message_output_created":
                text = "".join(part.text for part in item.raw_item.content if part.type == "output_text")
                if text:
                    host.emit("message", text=text)
            case "reasoning_item_created":
                pieces = [*(item.raw_item.summary or []), *(item.raw_item.content or [])]
                text = "\n".join(piece.text for piece in pieces)
                if text:
                    host.emit("reasoning", text=text)
            # The SDK misspells this event.
            case "handoff_occured" | "handoff_occurred":
                host.emit("handoff", **{"from": item.source_agent.name, "to": item.target_agent.name})


def _usage(result: RunResultStreaming) -> Usage:
    usage = result.context_wrapper.usage
    return Usage(
        usage.requests,
        usage.input_tokens,
        usage.output_tokens,
        usage.input_tokens_details.cached_tokens or 0,
        usage.output_tokens_details.reasoning_tokens or 0,
    )
