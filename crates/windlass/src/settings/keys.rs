//! Every key there is, with what it may be and what it is for: the one table that files, flags, variables and the
//! reference are read and made by.
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

const MODES: SettingKind = Choice(&["plan", "ask", "edit", "auto"]);
const LEVELS: SettingKind = Choice(SandboxLevel::VARIANTS);
const EFFECTS: SettingKind = Choice(&["read", "network", "write", "execute", "external"]);

/// A row is `name: kind, doc;`.
macro_rules! keys {
    ($($name:literal: $kind:expr, $doc:literal;)*) => {
        &[$(Key { name: $name, kind: $kind, doc: $doc }),*]
    };
}

/// Every key there is.
pub const KEYS: &[Key] = keys! {
    "runtime": Text, "Who works: a name of `windlass runtimes`, acp:COMMAND, or auto; native without it.";
    "acp_registry": Text,
        "A file in the format of the ACP registry that agents are installed from; a copy of the public one without it.";
    "runtime_order": Texts,
        "Runtimes that `auto` may choose, the best first; native, the tested ones and the rest without it.";
    "runtime_fallback": Boolean, "Step down from the work to a patch to an answer where the runtime cannot do more.";
    "provider": Text, "The vendor to ask when a model names none.";
    "model": Text, "The model, as `model` or `vendor/model`.";
    "approval": MODES, "How freely calls run: plan, ask, edit or auto.";
    "on_ask": Choice(AskPolicy::VARIANTS),
        "When nobody is there to answer; the default is pause, and deny where CI is set.";
    "ask_expiry_hours": Number,
        "How long an ask that nobody was there for can be answered, in hours; the default is for ever.";
    "max_budget_usd": Limit, "Most money a run may spend, in US dollars.";
    "max_steps": Limit, "Most model calls of a run.";
    "max_tokens": Limit, "Most tokens of a run.";
    "max_seconds": Limit, "Most seconds of a run, without waiting for a person.";
    "max_iterations": Limit, "Most tries of a run until the checks pass.";
    "temperature": Number, "How freely the model chooses its words, 0 to 2.";
    "reasoning_effort": Text, "How hard the model thinks: low, medium, high …";
    "thinking_tokens": Integer, "Tokens the model may think before it answers.";
    "max_output": Integer, "Most tokens of one answer.";
    "stop": Texts, "Texts that end an answer.";
    "instructions": Text,
        "Words of your own that the model gets behind the instruction files; most useful in a profile.";
    "rules.allow": Texts, "Calls that need no approval, as `tool(pattern)`.";
    "rules.ask": Texts, "Calls that always need approval.";
    "rules.deny": Texts, "Calls that are forbidden; `tool` alone hides the tool.";
    "credentials.show": Texts,
        "Paths of credentials that a person may allow a model to see, as globs; all others are denied.";
    "sandbox.level": LEVELS, "What commands may do: read-only, workspace-write or full.";
    "sandbox.net": Text, "What they reach: off, loopback (each other; the default), registries, allow:HOST,… or open.";
    "sandbox.read": Texts, "Further paths they may read; shows credentials named here.";
    "sandbox.write": Texts, "Further paths they may change.";
    "sandbox.accept": Choice(&["landlock"]),
        "Accept Landlock alone where no tier holds files, processes and network.";
    "sandbox.require": Choice(&["broker", "namespaces"]),
        "The weakest sandbox tier that will do; a machine without it refuses to run commands.";
    "sandbox.processes": Integer, "Most processes of a command at a time; 220.";
    "sandbox.memory_mb": Integer, "Most memory of a command, in MiB; 4096.";
    "validate.chain": Texts,
        "Who looks before a run lands, in order; `detected` stands for the commands found in the project.";
    "validate.protect": Texts, "Tests and the like that are judged by as they were before the run, as globs.";
    "validate.setup": Texts, "Commands that prepare the tree for the checks, such as `npm ci`.";
    "validate.setup_net": Text, "Hosts that these commands may reach: `registries`, or `allow:HOST,HOST`.";
    "validate.strict_judge": Boolean, "A changed test or check is a failure.";
    "validate.write_paths": Texts, "The only paths that runs may change.";
    "validators.*.command": Text, "A check of your own: a command that must succeed.";
    "validators.*.custom": Text, "A check that answers with JSON (docs/validators.md).";
    "validators.*.blocking": Boolean, "Whether its failure stops the landing.";
    "validators.*.timeout_s": Number, "Seconds until it is ended; 600.";
    "validators.*.fixes": Boolean, "It may change files; all checks run again then.";
    "validators.*.judges": Texts, "Paths its verdict hangs on, as globs.";
    "providers.*.base_url": Text, "Another address of a vendor.";
    "providers.*.context_window": Number,
        "Tokens a local server is to hold, where it can be told; the default is at most 32768.";
    "providers.*.region": Text, "Where a cloud vendor's models run.";
    "providers.*.project": Text, "The project a cloud vendor bills.";
    "providers.*.api_version": Text, "The version of a vendor's interface.";
    "providers.*.key_env": Text, "The variable that holds a vendor's key.";
    "prices.*.input": Number, "US dollars for a million input tokens of a model.";
    "prices.*.output": Number, "The same for output.";
    "prices.*.cache_read": Number, "The same for input from a cache.";
    "prices.*.cache_write": Number, "The same for input written to a cache.";
    "models.*.context_window": Integer,
        "Tokens a model reads and writes together, where that is not known or is to be less.";
    "models.*.tools": Boolean, "Whether a model can call tools; without, it acts through JSON in its text.";
    "idle_timeout_s": Number, "Seconds without a byte from a model before it is given up; 120.";
    "profiles.*.runtime": Text, "What `--profile NAME` sets `runtime` to.";
    "profiles.*.provider": Text, "What `--profile NAME` sets `provider` to.";
    "profiles.*.model": Text, "What `--profile NAME` sets `model` to.";
    "profiles.*.approval": MODES, "What `--profile NAME` sets `approval` to.";
    "profiles.*.sandbox": LEVELS, "What `--profile NAME` sets `sandbox.level` to.";
    "profiles.*.mode": Choice(&["full", "patch", "analysis"]),
        "What kind of work a run of the profile is; full without it.";
    "profiles.*.tools": Texts, "The only tools of the profile, as globs; all without.";
    "profiles.*.reasoning_effort": Text, "The same for `reasoning_effort`.";
    "profiles.*.temperature": Number, "The same for `temperature`.";
    "profiles.*.instructions": Text, "What the model is told in a run of the profile.";
    "profiles.*.max_budget_usd": Limit, "The same for `max_budget_usd`.";
    "profiles.*.max_steps": Limit, "The same for `max_steps`.";
    "runtimes.*.command": Text, "The program of a foreign agent, by its name or its path.";
    "runtimes.*.kind": Choice(&["acp", "cli"]),
        "An agent of your own: one that speaks ACP, or a program that does one prompt and ends.";
    "runtimes.*.about": Text, "What an agent of your own is, in a few words.";
    "runtimes.*.masked_dirs": Texts,
        "Directories of a project with code or settings for the agent: they are empty in its copy.";
    "runtimes.*.instruction_files": Texts, "Instruction files that the agent reads by itself: it is not told them again.";
    "runtimes.*.vendors": Texts, "Vendors that are tried for its model when none is named, in this order.";
    "runtimes.*.wires": Texts,
        "How it can ask its model: anthropic, responses, chat and gemini; an agent of your own can by all without it.";
    "runtimes.*.needs_model": Boolean, "Whether it has to be told its model; the vendor's usual one where none is named.";
    "runtimes.*.login_hosts": Texts, "Hosts that it has to reach with its own login.";
    "runtimes.*.calls_itself": Text,
        "ACP: the name of an agent that windlass knows and that it is like, in the place of the name that it says.";
    "runtimes.*.words.*": Text,
        "ACP: a further word in braces for its texts: its value by the wire of the model, as `anthropic=/v1 | /v2`.";
    "runtimes.*.mcp": Boolean, "ACP: whether it uses MCP servers that it is given.";
    "runtimes.*.keeps_directory": Boolean,
        "ACP: whether its conversations stay in the directory in which they began.";
    "runtimes.*.args": Texts, "claude-code, codex, ACP, aider, openhands, cli: further words for it.";
    "runtimes.*.env.*": Text, "A variable for it.";
    "runtimes.*.auth": Choice(SignIn::VARIANTS),
        "How it signs in: with your key, which it never sees, or with its own login.";
    "runtimes.*.metering": Choice(MeteringKind::VARIANTS),
        "How it is known what it spends; anything but wire only with its own login.";
    "runtimes.*.login_file": Text, "Its credential file, below your home: all that it gets of it with its own login.";
    "runtimes.*.approval": MODES,
        "How freely its calls run, in the place of `approval`; one of a stronger layer counts over it, as a flag.";
    "runtimes.*.mcp_servers": Text,
        "claude-code, codex, openhands, ACP: MCP servers that it is to use, as JSON in the form of `.mcp.json`. \
         They run where it runs.";
    "runtimes.*.effort": Text, "claude-code, codex, aider, openhands, openai-agents: how hard the model thinks.";
    "runtimes.*.thinking_tokens": Integer, "claude-code, aider: tokens to think with.";
    "runtimes.*.fallback_models": Texts, "claude-code: models when one is overloaded.";
    "runtimes.*.allowed_tools": Texts, "claude-code: the only tools it is offered.";
    "runtimes.*.disallowed_tools": Texts, "claude-code: tools it does not get.";
    "runtimes.*.setting_sources": Texts,
        "claude-code: settings of its own it reads, of project and local; none without it.";
    "runtimes.*.append_system_prompt": Text, "claude-code: words behind its system prompt.";
    "runtimes.*.max_turns": Integer, "claude-code, SDKs: model calls it may make on one prompt.";
    "runtimes.*.agents": Text,
        "SDKs: agents that the first one can hand over to, as JSON: a list of objects with name, description, \
         instructions and, where they differ, model and tools.";
    "runtimes.*.parallel_tool_calls": Boolean, "openai-agents: whether the model may ask for several calls at once.";
    "runtimes.*.developer_instructions": Text, "codex: words for the model beside its own instructions.";
    "runtimes.*.config.*": Text, "codex: a value of its own configuration.";
    "runtimes.*.tools": Texts, "openhands: the tools it gets, by its own names.";
    "runtimes.*.max_iterations": Integer, "openhands: steps with calls in them that it may take on one prompt.";
    "runtimes.*.mode": Text, "ACP: the mode to work in, by its id or name.";
    "runtimes.*.config_options.*": Text, "ACP: a setting of the agent's own.";
    "runtimes.*.auth_method": Text, "ACP: how it is to sign in, by the method's id.";
    "runtimes.*.fs": Boolean, "ACP: whether it reads and writes files through us.";
    "runtimes.*.terminal": Boolean, "ACP: whether it runs commands through us.";
    "runtimes.*.point_at.*": Text, "ACP, cli: a variable that points it at its model endpoint, with {url} and {key}.";
    "runtimes.*.home_files.*": Text, "ACP, cli: a file in its home, with {url} and {key}.";
    "runtimes.*.output": Choice(&["text", "jsonl"]), "cli: what it prints: its answer in words, or JSON lines.";
    "runtimes.*.fields.*": Text,
        "cli: where something stands in its lines, as `part.text` or `type=text:part.text` (docs/runtimes.md).";
    "runtimes.*.resume_args": Texts, "cli: further words to go on with an earlier conversation, with {session}.";
    "runtimes.*.edit_format": Text,
        "aider: how the model writes edits: diff (without it), whole, udiff, architect …, or auto.";
    "runtimes.*.map_tokens": Integer, "aider: tokens of the map of the repository that the model sees; 0 is none.";
    "runtimes.*.files": Texts, "aider: files that are always in the chat.";
    "runtimes.*.read_files": Texts, "aider: files that the model only sees.";
    "runtimes.*.test_command": Text,
        "aider: a command that it runs after its edits, and whose failures it goes on with.";
    "runtimes.*.session_meta": Text, "ACP: what a session is begun with beside the protocol, as a JSON object.";
    "runtimes.*.asks": Boolean, "ACP: whether it asks before each call.";
    "runtimes.*.reports_cost": Boolean, "ACP: whether it says what it cost.";
    "runtimes.*.turn_usage": Choice(&["sum", "last_call"]), "ACP: what its numbers at the end of a turn count.";
    "runtimes.*.kinds.*": Choice(&["read", "edit", "delete", "move", "search", "execute", "think", "fetch"]),
        "ACP: what a tool of it does that it calls `other`, by the tool's name.";
    "runtimes.*.steered_by": Texts, "ACP: files and folders of its home that are gone before each start.";
    "request_timeout_s": Number, "Longest time for one whole answer, in seconds.";
    "env.pass": Texts, "Variables that commands get although they look secret.";
    "tools.*.command": Texts, "The program of a tool of your own, and its arguments.";
    "tools.*.description": Text, "What that tool does, for the model.";
    "tools.*.schema": Text, "JSON Schema of its arguments, as text; none without it.";
    "tools.*.effect": EFFECTS, "The worst it can do; it must be said.";
    "tools.*.timeout_s": Number, "Seconds until it is ended; 120.";
    "otel.endpoint": Text,
        "A collector that traces and metrics of runs are sent to (OTLP/HTTP); nothing is sent without it.";
    "otel.enabled": Boolean,
        "Whether telemetry is sent; without `otel.endpoint` to OTEL_EXPORTER_OTLP_ENDPOINT or localhost:4318.";
    "otel.headers": Texts, "Headers for the collector, as `header=VARIABLE`: the value stands in the variable.";
    "otel.content": Boolean, "Also send what was said: prompts, answers, arguments and results, without secrets.";
    "otel.service_name": Text, "`service.name` of what is sent; windlass.";
    "ca_file": Text, "A PEM file with further root certificates.";
};
