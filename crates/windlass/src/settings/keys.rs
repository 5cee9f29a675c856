//! Every key there is, with what it may be and what it is for: the one table that files, flags, variables and the
//! reference are read and made by.

use windlass_host::config::{Key, Kind};

const MODES: Kind = Kind::Choice(&["plan", "ask", "edit", "auto"]);
const LEVELS: Kind = Kind::Choice(&["read-only", "workspace-write", "full"]);

const EFFECTS: Kind = Kind::Choice(&["read", "network", "write", "execute", "external"]);

/// Every key there is.
pub const KEYS: &[Key] = &[
    Key {
        name: "runtime",
        kind: Kind::Text,
        doc: "Who works: a name of `windlass runtimes`, acp:COMMAND, or auto; native without it.",
    },
    Key {
        name: "runtime_order",
        kind: Kind::Texts,
        doc: "Runtimes that `auto` may choose, the best first; native, the tested ones and the rest without it.",
    },
    Key {
        name: "runtime_fallback",
        kind: Kind::Boolean,
        doc: "Step down from the work to a patch to an answer where the runtime cannot do more.",
    },
    Key {
        name: "provider",
        kind: Kind::Text,
        doc: "The vendor to ask when a model names none.",
    },
    Key {
        name: "model",
        kind: Kind::Text,
        doc: "The model, as `model` or `vendor/model`.",
    },
    Key {
        name: "approval",
        kind: MODES,
        doc: "How freely calls run: plan, ask, edit or auto.",
    },
    Key {
        name: "on_ask",
        kind: Kind::Choice(&["pause", "deny"]),
        doc: "When nobody is there to answer; the default is pause, and deny where CI is set.",
    },
    Key {
        name: "ask_expiry_hours",
        kind: Kind::Number,
        doc: "How long an ask that nobody was there for can be answered, in hours; the default is for ever.",
    },
    Key {
        name: "max_budget_usd",
        kind: Kind::Limit,
        doc: "Most money a run may spend, in US dollars.",
    },
    Key {
        name: "max_steps",
        kind: Kind::Limit,
        doc: "Most model calls of a run.",
    },
    Key {
        name: "max_tokens",
        kind: Kind::Limit,
        doc: "Most tokens of a run.",
    },
    Key {
        name: "max_seconds",
        kind: Kind::Limit,
        doc: "Most seconds of a run, without waiting for a person.",
    },
    Key {
        name: "max_iterations",
        kind: Kind::Limit,
        doc: "Most tries of a run until the checks pass.",
    },
    Key {
        name: "temperature",
        kind: Kind::Number,
        doc: "How freely the model chooses its words, 0 to 2.",
    },
    Key {
        name: "reasoning_effort",
        kind: Kind::Text,
        doc: "How hard the model thinks: low, medium, high …",
    },
    Key {
        name: "thinking_tokens",
        kind: Kind::Integer,
        doc: "Tokens the model may think before it answers.",
    },
    Key {
        name: "max_output",
        kind: Kind::Integer,
        doc: "Most tokens of one answer.",
    },
    Key {
        name: "stop",
        kind: Kind::Texts,
        doc: "Texts that end an answer.",
    },
    Key {
        name: "instructions",
        kind: Kind::Text,
        doc: "Words of your own that the model gets behind the instruction files; most useful in a profile.",
    },
    Key {
        name: "rules.allow",
        kind: Kind::Texts,
        doc: "Calls that need no approval, as `tool(pattern)`.",
    },
    Key {
        name: "rules.ask",
        kind: Kind::Texts,
        doc: "Calls that always need approval.",
    },
    Key {
        name: "rules.deny",
        kind: Kind::Texts,
        doc: "Calls that are forbidden; `tool` alone hides the tool.",
    },
    Key {
        name: "credentials.show",
        kind: Kind::Texts,
        doc: "Paths of credentials that a person may allow a model to see, as globs; all others are denied.",
    },
    Key {
        name: "sandbox.level",
        kind: LEVELS,
        doc: "What commands may do: read-only, workspace-write or full.",
    },
    Key {
        name: "sandbox.net",
        kind: Kind::Text,
        doc: "What they reach: off, loopback, registries, allow:HOST,… or open.",
    },
    Key {
        name: "sandbox.read",
        kind: Kind::Texts,
        doc: "Further paths they may read; shows credentials named here.",
    },
    Key {
        name: "sandbox.write",
        kind: Kind::Texts,
        doc: "Further paths they may change.",
    },
    Key {
        name: "sandbox.accept",
        kind: Kind::Choice(&["landlock"]),
        doc: "Accept Landlock alone where no tier holds files, processes and network.",
    },
    Key {
        name: "sandbox.require",
        kind: Kind::Choice(&["broker", "namespaces"]),
        doc: "The weakest sandbox tier that will do; a machine without it refuses to run commands.",
    },
    Key {
        name: "sandbox.processes",
        kind: Kind::Integer,
        doc: "Most processes of a command at a time; 250.",
    },
    Key {
        name: "sandbox.memory_mb",
        kind: Kind::Integer,
        doc: "Most memory of a command, in MiB; 4096.",
    },
    Key {
        name: "validate.chain",
        kind: Kind::Texts,
        doc: "Who looks before a run lands, in order; `detected` stands for the commands found in the project.",
    },
    Key {
        name: "validate.protect",
        kind: Kind::Texts,
        doc: "Tests and the like that are judged by as they were before the run, as globs.",
    },
    Key {
        name: "validate.strict_judge",
        kind: Kind::Boolean,
        doc: "A changed test or check is a failure.",
    },
    Key {
        name: "validate.write_paths",
        kind: Kind::Texts,
        doc: "The only paths that runs may change.",
    },
    Key {
        name: "validators.*.command",
        kind: Kind::Text,
        doc: "A check of your own: a command that must succeed.",
    },
    Key {
        name: "validators.*.custom",
        kind: Kind::Text,
        doc: "A check that answers with JSON (docs/validators.md).",
    },
    Key {
        name: "validators.*.blocking",
        kind: Kind::Boolean,
        doc: "Whether its failure stops the landing.",
    },
    Key {
        name: "validators.*.timeout_s",
        kind: Kind::Number,
        doc: "Seconds until it is ended; 600.",
    },
    Key {
        name: "validators.*.fixes",
        kind: Kind::Boolean,
        doc: "It may change files; all checks run again then.",
    },
    Key {
        name: "validators.*.judges",
        kind: Kind::Texts,
        doc: "Paths its verdict hangs on, as globs.",
    },
    Key {
        name: "providers.*.base_url",
        kind: Kind::Text,
        doc: "Another address of a vendor.",
    },
    Key {
        name: "providers.*.context_window",
        kind: Kind::Number,
        doc: "Tokens a local server is to hold, where it can be told; the default is at most 32768.",
    },
    Key {
        name: "providers.*.region",
        kind: Kind::Text,
        doc: "Where a cloud vendor's models run.",
    },
    Key {
        name: "providers.*.project",
        kind: Kind::Text,
        doc: "The project a cloud vendor bills.",
    },
    Key {
        name: "providers.*.api_version",
        kind: Kind::Text,
        doc: "The version of a vendor's interface.",
    },
    Key {
        name: "providers.*.key_env",
        kind: Kind::Text,
        doc: "The variable that holds a vendor's key.",
    },
    Key {
        name: "prices.*.input",
        kind: Kind::Number,
        doc: "US dollars for a million input tokens of a model.",
    },
    Key {
        name: "prices.*.output",
        kind: Kind::Number,
        doc: "The same for output.",
    },
    Key {
        name: "prices.*.cache_read",
        kind: Kind::Number,
        doc: "The same for input from a cache.",
    },
    Key {
        name: "prices.*.cache_write",
        kind: Kind::Number,
        doc: "The same for input written to a cache.",
    },
    Key {
        name: "models.*.context_window",
        kind: Kind::Integer,
        doc: "Tokens a model reads and writes together, where that is not known or is to be less.",
    },
    Key {
        name: "models.*.tools",
        kind: Kind::Boolean,
        doc: "Whether a model can call tools; without, it acts through JSON in its text.",
    },
    Key {
        name: "idle_timeout_s",
        kind: Kind::Number,
        doc: "Seconds without a byte from a model before it is given up; 120.",
    },
    Key {
        name: "profiles.*.runtime",
        kind: Kind::Text,
        doc: "What `--profile NAME` sets `runtime` to.",
    },
    Key {
        name: "profiles.*.provider",
        kind: Kind::Text,
        doc: "What `--profile NAME` sets `provider` to.",
    },
    Key {
        name: "profiles.*.model",
        kind: Kind::Text,
        doc: "What `--profile NAME` sets `model` to.",
    },
    Key {
        name: "profiles.*.approval",
        kind: MODES,
        doc: "What `--profile NAME` sets `approval` to.",
    },
    Key {
        name: "profiles.*.sandbox",
        kind: LEVELS,
        doc: "What `--profile NAME` sets `sandbox.level` to.",
    },
    Key {
        name: "profiles.*.mode",
        kind: Kind::Choice(&["full", "patch", "analysis"]),
        doc: "What kind of work a run of the profile is; full without it.",
    },
    Key {
        name: "profiles.*.tools",
        kind: Kind::Texts,
        doc: "The only tools of the profile, as globs; all without.",
    },
    Key {
        name: "profiles.*.reasoning_effort",
        kind: Kind::Text,
        doc: "The same for `reasoning_effort`.",
    },
    Key {
        name: "profiles.*.temperature",
        kind: Kind::Number,
        doc: "The same for `temperature`.",
    },
    Key {
        name: "profiles.*.instructions",
        kind: Kind::Text,
        doc: "What the model is told in a run of the profile.",
    },
    Key {
        name: "profiles.*.max_budget_usd",
        kind: Kind::Limit,
        doc: "The same for `max_budget_usd`.",
    },
    Key {
        name: "profiles.*.max_steps",
        kind: Kind::Limit,
        doc: "The same for `max_steps`.",
    },
    Key {
        name: "runtimes.*.command",
        kind: Kind::Text,
        doc: "The program of a foreign agent, by its name or its path.",
    },
    Key {
        name: "runtimes.*.kind",
        kind: Kind::Choice(&["acp", "cli"]),
        doc: "An agent of your own: one that speaks ACP, or a program that does one prompt and ends.",
    },
    Key {
        name: "runtimes.*.about",
        kind: Kind::Text,
        doc: "What an agent of your own is, in a few words.",
    },
    Key {
        name: "runtimes.*.args",
        kind: Kind::Texts,
        doc: "claude-code, codex, ACP, aider, openhands, cli: further words for it.",
    },
    Key {
        name: "runtimes.*.env.*",
        kind: Kind::Text,
        doc: "A variable for it.",
    },
    Key {
        name: "runtimes.*.auth",
        kind: Kind::Choice(&["key", "login"]),
        doc: "How it signs in: with your key, which it never sees, or with its own login.",
    },
    Key {
        name: "runtimes.*.metering",
        kind: Kind::Choice(&["wire", "reported", "none"]),
        doc: "How it is known what it spends; anything but wire only with its own login.",
    },
    Key {
        name: "runtimes.*.login_file",
        kind: Kind::Text,
        doc: "Its credential file, below your home: all that it gets of it with its own login.",
    },
    Key {
        name: "runtimes.*.approval",
        kind: MODES,
        doc: "How freely its calls run, in the place of `approval`; one of a stronger layer counts over it, as a flag.",
    },
    Key {
        name: "runtimes.*.mcp_servers",
        kind: Kind::Text,
        doc: "claude-code, codex, openhands, ACP: MCP servers that it is to use, as JSON in the form of `.mcp.json`. They run \
              where it runs.",
    },
    Key {
        name: "runtimes.*.effort",
        kind: Kind::Text,
        doc: "claude-code, codex, aider, openhands, openai-agents: how hard the model thinks.",
    },
    Key {
        name: "runtimes.*.thinking_tokens",
        kind: Kind::Integer,
        doc: "claude-code, aider: tokens to think with.",
    },
    Key {
        name: "runtimes.*.fallback_models",
        kind: Kind::Texts,
        doc: "claude-code: models when one is overloaded.",
    },
    Key {
        name: "runtimes.*.allowed_tools",
        kind: Kind::Texts,
        doc: "claude-code: the only tools it is offered.",
    },
    Key {
        name: "runtimes.*.disallowed_tools",
        kind: Kind::Texts,
        doc: "claude-code: tools it does not get.",
    },
    Key {
        name: "runtimes.*.setting_sources",
        kind: Kind::Texts,
        doc: "claude-code: settings of its own it reads, of project and local; none without it.",
    },
    Key {
        name: "runtimes.*.append_system_prompt",
        kind: Kind::Text,
        doc: "claude-code: words behind its system prompt.",
    },
    Key {
        name: "runtimes.*.max_turns",
        kind: Kind::Integer,
        doc: "claude-code, SDKs: model calls it may make on one prompt.",
    },
    Key {
        name: "runtimes.*.agents",
        kind: Kind::Text,
        doc: "SDKs: agents that the first one can hand over to, as JSON: a list of objects with name, description, \
              instructions and, where they differ, model and tools.",
    },
    Key {
        name: "runtimes.*.parallel_tool_calls",
        kind: Kind::Boolean,
        doc: "openai-agents: whether the model may ask for several calls at once.",
    },
    Key {
        name: "runtimes.*.developer_instructions",
        kind: Kind::Text,
        doc: "codex: words for the model beside its own instructions.",
    },
    Key {
        name: "runtimes.*.config.*",
        kind: Kind::Text,
        doc: "codex: a value of its own configuration.",
    },
    Key {
        name: "runtimes.*.tools",
        kind: Kind::Texts,
        doc: "openhands: the tools it gets, by its own names.",
    },
    Key {
        name: "runtimes.*.max_iterations",
        kind: Kind::Integer,
        doc: "openhands: steps with calls in them that it may take on one prompt.",
    },
    Key {
        name: "runtimes.*.mode",
        kind: Kind::Text,
        doc: "ACP: the mode to work in, by its id or name.",
    },
    Key {
        name: "runtimes.*.config_options.*",
        kind: Kind::Text,
        doc: "ACP: a setting of the agent's own.",
    },
    Key {
        name: "runtimes.*.auth_method",
        kind: Kind::Text,
        doc: "ACP: how it is to sign in, by the method's id.",
    },
    Key {
        name: "runtimes.*.fs",
        kind: Kind::Boolean,
        doc: "ACP: whether it reads and writes files through us.",
    },
    Key {
        name: "runtimes.*.terminal",
        kind: Kind::Boolean,
        doc: "ACP: whether it runs commands through us.",
    },
    Key {
        name: "runtimes.*.point_at.*",
        kind: Kind::Text,
        doc: "ACP, cli: a variable that points it at its model endpoint, with {url} and {key}.",
    },
    Key {
        name: "runtimes.*.home_files.*",
        kind: Kind::Text,
        doc: "ACP, cli: a file in its home, with {url} and {key}.",
    },
    Key {
        name: "runtimes.*.output",
        kind: Kind::Choice(&["text", "jsonl"]),
        doc: "cli: what it prints: its answer in words, or JSON lines.",
    },
    Key {
        name: "runtimes.*.fields.*",
        kind: Kind::Text,
        doc: "cli: where something stands in its lines, as `part.text` or `type=text:part.text` (docs/runtimes.md).",
    },
    Key {
        name: "runtimes.*.resume_args",
        kind: Kind::Texts,
        doc: "cli: further words to go on with an earlier conversation, with {session}.",
    },
    Key {
        name: "runtimes.*.edit_format",
        kind: Kind::Text,
        doc: "aider: how the model writes edits: diff (without it), whole, udiff, architect …, or auto.",
    },
    Key {
        name: "runtimes.*.map_tokens",
        kind: Kind::Integer,
        doc: "aider: tokens of the map of the repository that the model sees; 0 is none.",
    },
    Key {
        name: "runtimes.*.files",
        kind: Kind::Texts,
        doc: "aider: files that are always in the chat.",
    },
    Key {
        name: "runtimes.*.read_files",
        kind: Kind::Texts,
        doc: "aider: files that the model only sees.",
    },
    Key {
        name: "runtimes.*.test_command",
        kind: Kind::Text,
        doc: "aider: a command that it runs after its edits, and whose failures it goes on with.",
    },
    Key {
        name: "runtimes.*.session_meta",
        kind: Kind::Text,
        doc: "ACP: what a session is begun with beside the protocol, as a JSON object.",
    },
    Key {
        name: "runtimes.*.asks",
        kind: Kind::Boolean,
        doc: "ACP: whether it asks before each call.",
    },
    Key {
        name: "runtimes.*.reports_cost",
        kind: Kind::Boolean,
        doc: "ACP: whether it says what it cost.",
    },
    Key {
        name: "runtimes.*.turn_usage",
        kind: Kind::Choice(&["sum", "last_call"]),
        doc: "ACP: what its numbers at the end of a turn count.",
    },
    Key {
        name: "runtimes.*.kinds.*",
        kind: Kind::Choice(&[
            "read", "edit", "delete", "move", "search", "execute", "think", "fetch",
        ]),
        doc: "ACP: what a tool of it does that it calls `other`, by the tool's name.",
    },
    Key {
        name: "runtimes.*.steered_by",
        kind: Kind::Texts,
        doc: "ACP: files and folders of its home that are gone before each start.",
    },
    Key {
        name: "request_timeout_s",
        kind: Kind::Number,
        doc: "Longest time for one whole answer, in seconds.",
    },
    Key {
        name: "env.pass",
        kind: Kind::Texts,
        doc: "Variables that commands get although they look secret.",
    },
    Key {
        name: "tools.*.command",
        kind: Kind::Texts,
        doc: "The program of a tool of your own, and its arguments.",
    },
    Key {
        name: "tools.*.description",
        kind: Kind::Text,
        doc: "What that tool does, for the model.",
    },
    Key {
        name: "tools.*.schema",
        kind: Kind::Text,
        doc: "JSON Schema of its arguments, as text; none without it.",
    },
    Key {
        name: "tools.*.effect",
        kind: EFFECTS,
        doc: "The worst it can do; it must be said.",
    },
    Key {
        name: "tools.*.timeout_s",
        kind: Kind::Number,
        doc: "Seconds until it is ended; 120.",
    },
    Key {
        name: "otel.endpoint",
        kind: Kind::Text,
        doc: "A collector that traces and metrics of runs are sent to (OTLP/HTTP); nothing is sent without it.",
    },
    Key {
        name: "otel.enabled",
        kind: Kind::Boolean,
        doc: "Whether telemetry is sent; without `otel.endpoint` to OTEL_EXPORTER_OTLP_ENDPOINT or localhost:4318.",
    },
    Key {
        name: "otel.headers",
        kind: Kind::Texts,
        doc: "Headers for the collector, as `header=VARIABLE`: the value stands in the variable.",
    },
    Key {
        name: "otel.content",
        kind: Kind::Boolean,
        doc: "Also send what was said: prompts, answers, arguments and results, without secrets.",
    },
    Key {
        name: "otel.service_name",
        kind: Kind::Text,
        doc: "`service.name` of what is sent; windlass.",
    },
    Key {
        name: "ca_file",
        kind: Kind::Text,
        doc: "A PEM file with further root certificates.",
    },
];
