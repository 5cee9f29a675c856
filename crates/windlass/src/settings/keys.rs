//! The table of all settings with their kinds and descriptions. Settings files, variables and flags are checked against
//! it, and the reference in the documentation is generated from it.
//!
//! ```
//! use windlass::settings::KEYS;
//!
//! assert!(KEYS.iter().any(|key| key.name == "max_budget_usd"));
//! ```

use strum::VariantNames;
use windlass_core::terms::{MeteringKind, SandboxLevel};
use windlass_host::config::SettingKind::{Boolean, Choice, Integer, Limit, Number, Text, Texts};
use windlass_host::config::{Key, SettingKind};

use crate::flags::{AskPolicy, SignIn};
use crate::notifications::TerminalSetting;

const MODES: SettingKind = Choice(&["plan", "ask", "edit", "auto"]);
const LEVELS: SettingKind = Choice(SandboxLevel::VARIANTS);
const EFFECTS: SettingKind = Choice(&["read", "network", "write", "execute", "external"]);

/// A row is `name: kind, doc;`.
macro_rules! keys {
    ($($name:literal: $kind:expr, $doc:literal;)*) => {
        &[$(Key { name: $name, kind: $kind, doc: $doc }),*]
    };
}

/// All settings, in the order of the reference.
pub const KEYS: &[Key] = keys! {
    "runtime": Text, "Agent to use: a name from `windlass runtimes`, acp:COMMAND, or auto; the default is native.";
    "acp_registry": Text,
        "A file in the format of the ACP registry, from which agents are installed; the default is a copy of the public registry.";
    "runtime_order": Texts,
        "Runtimes that `auto` may choose, the preferred first; the default is native, the tested ones, then the others.";
    "runtime_fallback": Boolean, "Fall back to a patch, or to an answer only, if the runtime cannot edit files.";
    "provider": Text, "The vendor for a model that is named without a vendor.";
    "model": Text, "The model, as `model` or `vendor/model`.";
    "approval": MODES, "Approval mode: plan, ask, edit or auto.";
    "on_ask": Choice(AskPolicy::VARIANTS),
        "Handling of an ask when no person is there to answer; the default is pause, or deny if the variable CI is set.";
    "ask_expiry_hours": Number,
        "Hours until a pending ask expires; the default is never.";
    "max_budget_usd": Limit, "Spending limit of a run in US dollars.";
    "max_steps": Limit, "Maximum number of model calls of a run.";
    "max_tokens": Limit, "Maximum number of tokens of a run.";
    "max_seconds": Limit, "Time limit of a run in seconds, without waiting for a person.";
    "max_iterations": Limit, "Maximum number of attempts of a run until the checks pass.";
    "temperature": Number, "Sampling temperature of the model, 0 to 2.";
    "reasoning_effort": Text, "Reasoning effort of the model: low, medium, high …";
    "thinking_tokens": Integer, "Maximum number of reasoning tokens before an answer.";
    "max_output": Integer, "Maximum number of output tokens of one model call.";
    "stop": Texts, "Stop sequences: texts that end an answer.";
    "instructions": Text,
        "Your own instructions, which the model gets after the instruction files; most useful in a profile.";
    "rules.allow": Texts, "Calls that need no approval, as `tool(pattern)`.";
    "rules.ask": Texts, "Calls that always need approval.";
    "rules.deny": Texts, "Calls that are forbidden; `tool` alone hides the tool.";
    "credentials.show": Texts,
        "Paths of credentials, as globs, that a model may read with the approval of a person; all others are denied.";
    "sandbox.level": LEVELS, "Sandbox for commands: read-only, workspace-write or full (no sandbox).";
    "sandbox.net": Text,
        "Network access for commands: off, loopback (only among themselves; the default), registries, allow:HOST,… or open.";
    "sandbox.read": Texts, "Further paths that commands may read, including credentials.";
    "sandbox.write": Texts, "Further paths that commands may change.";
    "sandbox.accept": Choice(&["landlock"]),
        "Accept the Landlock tier if no tier is available that contains files, processes and network.";
    "sandbox.require": Choice(&["broker", "namespaces"]),
        "The weakest acceptable sandbox tier; on a machine without it, commands are refused.";
    "sandbox.processes": Integer, "Maximum number of processes of a command; the default is 220.";
    "sandbox.memory_mb": Integer, "Memory limit of a command in MiB; the default is 4096.";
    "validate.chain": Texts,
        "Checks before a run lands, in order; `detected` stands for the commands that are detected in the project.";
    "validate.protect": Texts,
        "Tests and similar files, as globs, that the checks use as they were before the run.";
    "validate.setup": Texts, "Commands that prepare the tree for the checks, such as `npm ci`.";
    "validate.setup_net": Text,
        "Hosts to which the setup commands may connect: `registries`, or `allow:HOST,HOST`.";
    "validate.strict_judge": Boolean, "Fail a run that changes tests, scripts or settings of the checks.";
    "validate.write_paths": Texts, "The only paths that runs may change, as globs.";
    "validators.*.command": Text, "A check of your own: a command that must succeed.";
    "validators.*.custom": Text, "A check of your own that reports in JSON (docs/validators.md).";
    "validators.*.blocking": Boolean, "Whether a failure of the check blocks the landing.";
    "validators.*.timeout_s": Number, "Timeout of the check in seconds; the default is 600.";
    "validators.*.fixes": Boolean, "Whether the check may change files; if it does, all checks run again.";
    "validators.*.judges": Texts, "Paths on which the verdict of the check depends, as globs.";
    "providers.*.base_url": Text, "The address of the model server, in place of the vendor's own.";
    "providers.*.context_window": Number,
        "Context window of a local server in tokens, if the server lets clients set it; the default is at most 32768.";
    "providers.*.region": Text, "The region of a cloud vendor.";
    "providers.*.project": Text, "The project of a cloud vendor.";
    "providers.*.api_version": Text, "The version of the vendor's API.";
    "providers.*.key_env": Text, "The variable that contains the vendor's key.";
    "prices.*.input": Number, "Price of a million input tokens of a model in US dollars.";
    "prices.*.output": Number, "Price of a million output tokens.";
    "prices.*.cache_read": Number, "Price of a million input tokens that are read from a cache.";
    "prices.*.cache_write": Number, "Price of a million input tokens that are written to a cache.";
    "models.*.context_window": Integer,
        "Context window of a model in tokens, if it is not known or should be smaller.";
    "models.*.tools": Boolean, "Whether a model supports tool calls; if not, it calls tools through JSON in its text.";
    "idle_timeout_s": Number, "Seconds without data from a model server before a request fails; the default is 120.";
    "profiles.*.runtime": Text, "The value of `runtime` in runs with `--profile NAME`.";
    "profiles.*.provider": Text, "The value of `provider` in runs with `--profile NAME`.";
    "profiles.*.model": Text, "The value of `model` in runs with `--profile NAME`.";
    "profiles.*.approval": MODES, "The value of `approval` in runs with `--profile NAME`.";
    "profiles.*.sandbox": LEVELS, "The value of `sandbox.level` in runs with `--profile NAME`.";
    "profiles.*.mode": Choice(&["full", "patch", "analysis"]),
        "The mode of runs with the profile; the default is full.";
    "profiles.*.tools": Texts, "The only tools of the profile, as globs; the default is all.";
    "profiles.*.reasoning_effort": Text, "The value of `reasoning_effort` in runs with `--profile NAME`.";
    "profiles.*.temperature": Number, "The value of `temperature` in runs with `--profile NAME`.";
    "profiles.*.instructions": Text, "Instructions for the model in runs with the profile.";
    "profiles.*.max_budget_usd": Limit, "The value of `max_budget_usd` in runs with `--profile NAME`.";
    "profiles.*.max_steps": Limit, "The value of `max_steps` in runs with `--profile NAME`.";
    "runtimes.*.command": Text, "The program of a foreign agent, as a name or a path.";
    "runtimes.*.kind": Choice(&["acp", "cli"]),
        "The kind of an agent of your own: it speaks ACP, or is a program that handles one prompt and exits.";
    "runtimes.*.about": Text, "A short description of an agent of your own.";
    "runtimes.*.masked_dirs": Texts,
        "Directories of a project with code or settings for the agent: they are empty in its copy.";
    "runtimes.*.state_dirs": Texts,
        "Directories of a project in which the agent keeps its own state: new ones do not land.";
    "runtimes.*.instruction_files": Texts,
        "Instruction files that the agent reads by itself, so Windlass does not send them.";
    "runtimes.*.vendors": Texts,
        "Vendors for a model that is named without a vendor; the first one with a key is used.";
    "runtimes.*.protocols": Texts,
        "Model protocols that the agent supports: anthropic, responses, chat and gemini; the default for an agent of your own is all.";
    "runtimes.*.needs_model": Boolean,
        "Whether the agent needs the name of a model; the default model of the vendor is used if none is named.";
    "runtimes.*.login_hosts": Texts, "Hosts to which the agent must connect with its own login.";
    "runtimes.*.calls_itself": Text,
        "ACP: the name of a known agent that this agent resembles, in place of the name that it reports.";
    "runtimes.*.words.*": Text,
        "ACP: a further placeholder for its texts, with a value for each protocol of the model, as `anthropic=/v1 | /v2`.";
    "runtimes.*.mcp": Boolean, "ACP: whether the agent uses MCP servers that Windlass passes.";
    "runtimes.*.keeps_directory": Boolean,
        "ACP: whether a conversation can be resumed only in the directory in which it began.";
    "runtimes.*.args": Texts, "claude-code, codex, ACP, aider, openhands, cli: further arguments of the agent.";
    "runtimes.*.env.*": Text, "An environment variable of the agent.";
    "runtimes.*.auth": Choice(SignIn::VARIANTS),
        "Sign-in of the agent: your key, which the agent never sees, or the agent's own login.";
    "runtimes.*.metering": Choice(MeteringKind::VARIANTS),
        "Metering of the agent's spending; values other than wire need the agent's own login.";
    "runtimes.*.login_file": Text,
        "The agent's credential file, relative to your home directory; with its own login, the agent gets only this file.";
    "runtimes.*.approval": MODES,
        "Approval mode for this agent; it overrides `approval`, unless that is set in a stronger layer, for example by a flag.";
    "runtimes.*.mcp_servers": Text,
        "claude-code, codex, openhands, ACP: MCP servers for the agent, as JSON in the form of `.mcp.json`. \
         They run in the agent's sandbox.";
    "runtimes.*.effort": Text, "claude-code, codex, aider, openhands, openai-agents: reasoning effort of the model.";
    "runtimes.*.thinking_tokens": Integer, "claude-code, aider: maximum number of reasoning tokens.";
    "runtimes.*.fallback_models": Texts, "claude-code: models to use if the first one is overloaded.";
    "runtimes.*.allowed_tools": Texts, "claude-code: the only tools of the agent.";
    "runtimes.*.disallowed_tools": Texts, "claude-code: tools that the agent does not get.";
    "runtimes.*.setting_sources": Texts,
        "claude-code: its own settings files that it reads, of project and local; the default is none.";
    "runtimes.*.append_system_prompt": Text, "claude-code: text to append to its system prompt.";
    "runtimes.*.max_turns": Integer, "claude-code, SDKs: maximum number of model calls for one prompt.";
    "runtimes.*.agents": Text,
        "SDKs: agents to which the first one can hand over, as JSON: a list of objects with name, description, \
         instructions and, if they differ, model and tools.";
    "runtimes.*.parallel_tool_calls": Boolean, "openai-agents: whether the model may request several calls at once.";
    "runtimes.*.developer_instructions": Text, "codex: instructions for the model in addition to its own.";
    "runtimes.*.config.*": Text, "codex: a value of its own configuration.";
    "runtimes.*.tools": Texts, "openhands: the tools of the agent, by its own names.";
    "runtimes.*.max_iterations": Integer, "openhands: maximum number of steps with calls for one prompt.";
    "runtimes.*.mode": Text, "ACP: the mode of the agent, by its id or name.";
    "runtimes.*.config_options.*": Text, "ACP: a setting of the agent's own.";
    "runtimes.*.auth_method": Text, "ACP: the sign-in method of the agent, by its id.";
    "runtimes.*.fs": Boolean, "ACP: whether the agent reads and writes files through Windlass.";
    "runtimes.*.terminal": Boolean, "ACP: whether the agent runs commands through Windlass.";
    "runtimes.*.point_at.*": Text,
        "ACP, cli: a variable that tells the agent the address of its model endpoint, with {url} and {key}.";
    "runtimes.*.home_files.*": Text, "ACP, cli: a file in the agent's home directory, with {url} and {key}.";
    "runtimes.*.output": Choice(&["text", "jsonl"]), "cli: format of the output: the answer as text, or JSON lines.";
    "runtimes.*.fields.*": Text,
        "cli: location of a value in the JSON lines, as `part.text` or `type=text:part.text` (docs/runtimes.md).";
    "runtimes.*.resume_args": Texts, "cli: further arguments to resume an earlier conversation, with {session}.";
    "runtimes.*.edit_format": Text,
        "aider: format of the model's edits: diff (the default), whole, udiff, architect …, or auto.";
    "runtimes.*.map_tokens": Integer, "aider: size in tokens of the repository map for the model; 0 for none.";
    "runtimes.*.files": Texts, "aider: files that are always in the chat.";
    "runtimes.*.read_files": Texts, "aider: files that the model can read and not edit.";
    "runtimes.*.test_command": Text,
        "aider: a command that runs after its edits; the agent tries to fix its failures.";
    "runtimes.*.session_meta": Text, "ACP: further values for the start of a session, as a JSON object.";
    "runtimes.*.asks": Boolean, "ACP: whether the agent asks before each call.";
    "runtimes.*.reports_cost": Boolean, "ACP: whether the agent reports its cost.";
    "runtimes.*.turn_usage": Choice(&["sum", "last_call"]),
        "ACP: meaning of the token counts at the end of a turn: the sum of its calls, or the last call.";
    "runtimes.*.kinds.*": Choice(&["read", "edit", "delete", "move", "search", "execute", "think", "fetch"]),
        "ACP: the kind of a tool that the agent reports as `other`, by the name of the tool.";
    "runtimes.*.steered_by": Texts,
        "ACP: files and directories in the agent's home directory that are deleted before each start.";
    "request_timeout_s": Number, "Timeout of a whole answer of a model in seconds.";
    "env.pass": Texts, "Variables that commands get even if their names look secret.";
    "tools.*.command": Texts, "The program of a tool of your own, and its arguments.";
    "tools.*.description": Text, "A description of the tool for the model.";
    "tools.*.schema": Text, "JSON Schema of the arguments of the tool, as text; the default is no arguments.";
    "tools.*.effect": EFFECTS, "The most dangerous effect of the tool; required.";
    "tools.*.timeout_s": Number, "Timeout of the tool in seconds; the default is 120.";
    "otel.endpoint": Text,
        "A collector for traces and metrics of runs (OTLP/HTTP); setting it enables telemetry.";
    "otel.enabled": Boolean,
        "Whether telemetry is sent; without `otel.endpoint` to OTEL_EXPORTER_OTLP_ENDPOINT or localhost:4318.";
    "otel.headers": Texts,
        "Headers for the collector, as `header=VARIABLE`: the value is read from the variable.";
    "otel.content": Boolean, "Also send prompts, answers, arguments and results, without secrets.";
    "otel.service_name": Text, "The attribute `service.name` of telemetry; the default is windlass.";
    "webhooks.*.url": Text,
        "An address that gets notifications about runs of the service as signed POST requests (docs/notifications.md).";
    "webhooks.*.events": Texts,
        "The notifications of the webhook: asked, run_finished and landed; the default is all of them.";
    "webhooks.*.secret_env": Text, "The variable with the secret that signs the requests of the webhook; its name must end in _SECRET or _KEY.";
    "webhooks.*.allow_private": Boolean,
        "Whether the webhook may have a private, loopback or link-local address; the default is false.";
    "notify.command": Text,
        "A command that runs when a run asks, lands or ends, with the notification as JSON on its standard input, \
         for at most 10 seconds.";
    "notify.terminal": Choice(TerminalSetting::VARIANTS),
        "Notification of the terminal when a run asks or ends after more than 10 seconds: auto (the default; a desktop \
         notification if the terminal supports it), bell or off.";
    "interface.screen": Choice(&["inline", "full", "plain"]),
        "Display mode of the terminal interface: inline (the default; in the scrollback of the terminal), full (panes), or \
         plain (labelled lines for screen readers).";
    "interface.theme": Choice(&["terminal", "dark", "light", "contrast"]),
        "Colours of the terminal interface; the default is terminal, which uses the colours of your terminal.";
    "interface.colors.*": Text,
        "A colour of the terminal interface instead of the one of the theme, for example interface.colors.accent = \"#3b82f6\".";
    "interface.vi_mode": Boolean, "Edit prompts with the keys of vi.";
    "interface.reduced_motion": Boolean,
        "Do not redraw the terminal interface only because time passes.";
    "server.retention_days": Number,
        "Days after its last event until the service deletes a session; the default is never.";
    "ca_file": Text, "A PEM file with further root certificates.";
};
