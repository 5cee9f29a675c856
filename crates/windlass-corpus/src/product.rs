//! The only module that knows the interface of windlass: its flags for the modes of the corpus, its tool names, where
//! it keeps its state, the format of its settings, and the fields of its events.

pub(crate) mod http;

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::case::{Case, Decision};
use crate::child::{self, ChildResult, ChildWatch};
use crate::fixture::CaseFixture;

/// `@STATE@` in the scratch directory. Both the settings and the data of the product are exactly here.
pub(crate) const STATE: &str = "state/windlass";
/// The folder that replaces `.agent`.
const PROJECT_FOLDER: &str = ".windlass";
/// The text that the terminal view shows when it waits for an approval.
pub(crate) const PROMPT: &str = "[n]o";
/// The exit code of a run that is left open on a question.
pub(crate) const ASKED: i32 = 5;
/// The exit code of a wrong command line.
pub(crate) const USAGE: i32 = 2;
/// Every documented exit code.
pub(crate) const CODES: &[i32] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 124, 130];
/// The text with which the model ends its work.
pub(crate) const WORDS: &str = "I will do it.";

/// Tool names of the corpus and of the product.
const TOOLS: &[(&str, &str)] = &[
    ("read", "read_file"),
    ("write", "write_file"),
    ("edit", "edit_file"),
    ("glob", "find_files"),
    ("grep", "grep"),
    ("bash", "bash"),
    ("fetch", "web_fetch"),
    ("task", "spawn_agent"),
    ("extract", "extract"),
    ("set_mode", "set_mode"),
    ("patch", "apply_patch"),
];

/// Returns the product's name of a tool; a name that is not in the table stays.
pub(crate) fn tool(name: &str) -> &str {
    TOOLS
        .iter()
        .find(|(theirs, _)| *theirs == name)
        .map_or(name, |(_, ours)| ours)
}

/// Replaces tool names in the text of a stream.
pub(crate) fn named(text: &str) -> String {
    TOOLS.iter().filter(|(theirs, ours)| theirs != ours).fold(
        text.to_owned(),
        |text, (theirs, ours)| {
            text.replace(
                &format!(r#""name":"{theirs}""#),
                &format!(r#""name":"{ours}""#),
            )
        },
    )
}

/// Returns the variables of the product for a variable of the corpus, which stays the first of them.
pub(crate) fn variable(name: &str) -> Vec<String> {
    let ours: &[&str] = match name {
        "PROVIDER_API_KEY" => &["ANTHROPIC_API_KEY"],
        "PROVIDER_BASE_URL" => &[
            "ANTHROPIC_BASE_URL",
            "WINDLASS_PROVIDERS_ANTHROPIC_BASE_URL",
        ],
        "AGENT_HOME" => &["XDG_CONFIG_HOME", "WINDLASS_HOME"],
        _ => &[],
    };
    std::iter::once(name)
        .chain(ours.iter().copied())
        .map(str::to_owned)
        .collect()
}

/// Returns the search path for programs.
pub(crate) fn search_path() -> OsString {
    std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into())
}

/// Returns whether a program is installed.
pub(crate) fn has_program(name: &str) -> bool {
    std::env::split_paths(&search_path()).any(|folder| folder.join(name).is_file())
}

/// Replaces `.agent` in a case by the product's own project folder.
pub(crate) fn translate_case(case: &mut Case) -> Result<(), String> {
    let agent = regex::Regex::new(r"\.agent\b").map_err(|err| err.to_string())?;
    let change = |value: &Value| -> Result<Value, String> {
        let text = value.to_string();
        serde_json::from_str(&agent.replace_all(&text, PROJECT_FOLDER))
            .map_err(|err| err.to_string())
    };
    case.input = change(&case.input)?;
    case.setup = case.setup.iter().map(change).collect::<Result<_, _>>()?;
    case.post = case.post.iter().map(change).collect::<Result<_, _>>()?;
    Ok(())
}

/// Adds the product's equivalent of a planted project file: a JSON settings file also becomes `config.toml`, and a
/// `.env` also sets the product's own variables.
pub(crate) fn translate_file(fixture: &CaseFixture, path: &Path) -> Result<(), String> {
    let io = |err: std::io::Error| format!("{}: {err}", path.display());
    let name = path.file_name().unwrap_or_default();
    if name == ".env" {
        let text = std::fs::read_to_string(path).map_err(io)?;
        let lines = text.lines().filter_map(|line| line.split_once('='));
        let more: String = lines
            .flat_map(|(name, value)| {
                variable(name)
                    .into_iter()
                    .skip(1)
                    .map(move |name| format!("{name}={value}\n"))
            })
            .map(|line| line.replace(".agent", PROJECT_FOLDER))
            .collect();
        return std::fs::write(path, text + &more).map_err(io);
    }
    let in_project = path
        .parent()
        .is_some_and(|folder| folder.ends_with(PROJECT_FOLDER));
    if !in_project || name != "settings.json" || path.starts_with(fixture.state()) {
        return Ok(());
    }
    let settings: Value =
        serde_json::from_slice(&std::fs::read(path).map_err(io)?).unwrap_or_default();
    let mut text = String::new();
    if settings["mode"] == "full" {
        let sandbox = if fixture.knows_sandbox {
            "[sandbox]\nlevel = \"full\"\nnet = \"open\"\n"
        } else {
            ""
        };
        text.push_str(&format!(
            "approval = \"auto\"\n{sandbox}[rules]\nallow = [\"bash\", \"write_file\"]\n"
        ));
    }
    if let Some(url) = settings["env"]["PROVIDER_BASE_URL"].as_str() {
        text.push_str(&format!(
            "[providers.anthropic]\nbase_url = {}\n",
            json!(url)
        ));
    }
    if text.is_empty() {
        Ok(())
    } else {
        std::fs::write(path.with_file_name("config.toml"), text).map_err(io)
    }
}

/// The product that is driven.
pub(crate) struct DrivenProduct {
    binary: PathBuf,
    commands: HashSet<String>,
    /// Whether it has sandbox settings.
    sandbox: bool,
}

impl DrivenProduct {
    /// Asks the binary for its commands and flags.
    pub(crate) fn open(binary: &Path) -> Result<Self, String> {
        // Make the path absolute, because cases run in other folders.
        let binary = &std::path::absolute(binary)
            .map_err(|err| format!("{} cannot be found: {err}", binary.display()))?;
        let said = |args: &[&str]| -> Result<String, String> {
            let mut command = Command::new(binary);
            command.args(args);
            let ran = child::run(
                command,
                &ChildWatch {
                    deadline: Duration::from_secs(20),
                    ..ChildWatch::default()
                },
            )?;
            if ran.code == 0 {
                Ok(ran.out)
            } else {
                Err(format!("{} does not work: {}", binary.display(), ran.err))
            }
        };
        let help = said(&["--help"])?;
        let listed = help
            .lines()
            .skip_while(|line| !line.starts_with("Commands:"))
            .skip(1);
        let commands = listed
            .take_while(|line| !line.trim().is_empty())
            .filter_map(|line| {
                let name = line.split_whitespace().next()?;
                (line.starts_with("  ") && !line.starts_with("   ")).then(|| name.to_owned())
            });
        let sandbox = said(&["run", "--help"])?.contains("--sandbox");
        Ok(Self {
            binary: binary.to_owned(),
            commands: commands.collect(),
            sandbox,
        })
    }

    /// Returns whether the product has a sandbox.
    pub(crate) fn has_sandbox(&self) -> bool {
        self.sandbox
    }

    pub(crate) fn has_command(&self, name: &str) -> bool {
        self.commands.contains(name)
    }

    /// Returns the path of the binary.
    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    /// Returns the flags for a mode of the corpus.
    pub(crate) fn mode(&self, mode: &str) -> Vec<String> {
        let (flags, level): (&[&str], &str) = match mode {
            "plan" => (&["--approval", "plan"], ""),
            "ask" => (&["--approval", "ask"], ""),
            "ci" => (&["--approval", "auto", "--on-ask", "deny"], ""),
            "full" => (&["--approval", "auto"], "full"),
            // The default sandbox level needs no flag. If it is not available, the product refuses calls that need it.
            _ => (&["--approval", "auto"], ""),
        };
        let mut flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
        if self.sandbox && !level.is_empty() {
            flags.extend(["--sandbox".to_owned(), level.to_owned()]);
        }
        flags
    }

    /// Returns the environment of every run, in the order in which variables are set.
    pub(crate) fn env(&self, fixture: &CaseFixture, mode: &str) -> Vec<(String, OsString)> {
        let state = fixture.state();
        let above = state.parent().unwrap_or(&state);
        let mut env: Vec<(String, OsString)> = vec![
            ("PATH".into(), search_path()),
            ("HOME".into(), fixture.value("@HOME@").into()),
            ("XDG_CONFIG_HOME".into(), above.into()),
            ("XDG_DATA_HOME".into(), above.into()),
            ("XDG_STATE_HOME".into(), above.into()),
            (
                "XDG_CACHE_HOME".into(),
                fixture.base.join("home/.cache").into(),
            ),
            ("TMPDIR".into(), fixture.base.join("tmp").into()),
            ("LANG".into(), "C.UTF-8".into()),
            ("GIT_CONFIG_NOSYSTEM".into(), "1".into()),
        ];
        if mode == "ci" {
            env.push(("CI".into(), "true".into()));
        }
        env.extend(
            fixture
                .env
                .iter()
                .map(|(name, value)| (name.clone(), value.into())),
        );
        env
    }

    /// Returns a command line of the product, in the case's directory and environment.
    pub(crate) fn command(&self, fixture: &CaseFixture, mode: &str, args: &[String]) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .args(args)
            .current_dir(&fixture.cwd)
            .env_clear()
            .envs(self.env(fixture, mode));
        command
    }

    /// Runs the product without a terminal.
    pub(crate) fn run(
        &self,
        fixture: &CaseFixture,
        mode: &str,
        args: &[String],
        watch: &ChildWatch<'_>,
    ) -> Result<ChildResult, String> {
        child::run(self.command(fixture, mode, args), watch)
    }

    /// Writes the user's settings for a case: its rules, additional settings and allowed calls, and a short timeout for
    /// a silent server.
    pub(crate) fn settings(
        &self,
        fixture: &CaseFixture,
        case: &Case,
        more: &str,
        also: &[&str],
    ) -> Result<(), String> {
        let prefixes = |key: &str| -> Vec<String> {
            crate::words(&case.rules[key])
                .flat_map(|p| [format!("bash({p})"), format!("bash({p} *)")])
                .collect()
        };
        let hosts =
            crate::words(&case.rules["allow_hosts"]).map(|host| format!("web_fetch({host})"));
        let reads = crate::words(&case.rules["deny_read"]).map(|glob| format!("read_file({glob})"));
        let also = also.iter().map(|&rule| rule.to_owned());
        let allow: Vec<String> = prefixes("allow")
            .into_iter()
            .chain(hosts)
            .chain(also)
            .collect();
        let deny: Vec<String> = prefixes("deny").into_iter().chain(reads).collect();
        let text = format!(
            "idle_timeout_s = 1.5\n{more}[rules]\nallow = {}\ndeny = {}\n",
            json!(allow),
            json!(deny)
        );
        let path = fixture.write("@STATE@/config.toml", &text)?;
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, private).map_err(|err| format!("{}: {err}", path.display()))
    }

    /// Trusts a folder, if the product has such a command.
    pub(crate) fn trust(&self, fixture: &CaseFixture, folder: &Path) -> Result<(), String> {
        if !self.has_command("trust") {
            return Ok(());
        }
        let args = ["trust", "add", &folder.display().to_string(), "--yes"].map(str::to_owned);
        let ran = self.run(fixture, "ask", &args, &ChildWatch::default())?;
        // Without project settings there is nothing to trust.
        let nothing = !folder.join(PROJECT_FOLDER).join("config.toml").exists();
        crate::holds(ran.code == 0 || nothing, || {
            format!("`windlass trust add` failed: {}", ran.err.trim())
        })
    }

    /// Returns the arguments of an in-place `run` with a script and the flags of the mode.
    pub(crate) fn scripted(&self, mode: &str, script: &Path, more: &[&str]) -> Vec<String> {
        let mut args: Vec<String> = ["run", "--in-place", "--script"]
            .iter()
            .map(|&arg| arg.to_owned())
            .collect();
        args.push(script.display().to_string());
        args.extend(self.mode(mode));
        args.extend(more.iter().map(|&arg| arg.to_owned()));
        args.push("go".to_owned());
        args
    }
}

/// Writes a script of these steps that ends with a text.
pub(crate) fn script(fixture: &CaseFixture, steps: &[Value]) -> Result<PathBuf, String> {
    let last = json!({ "text": WORDS });
    let lines: String = steps
        .iter()
        .chain([&last])
        .map(|step| format!("{step}\n"))
        .collect();
    let path = fixture.base.join("script.jsonl");
    std::fs::write(&path, lines).map_err(|err| format!("the script cannot be written: {err}"))?;
    Ok(path)
}

/// Lists the folders of the sessions, oldest first.
pub(crate) fn sessions(fixture: &CaseFixture) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(fixture.state().join("sessions"))
        .into_iter()
        .flatten()
        .flatten();
    let mut all: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| log_file(path).symlink_metadata().is_ok())
        .collect();
    all.sort();
    all
}

/// Returns the path of a session's log.
pub(crate) fn log_file(session: &Path) -> PathBuf {
    session.join("events.jsonl")
}

/// Returns the events of the newest session.
pub(crate) fn log(fixture: &CaseFixture) -> Vec<Value> {
    let newest = sessions(fixture).pop();
    newest.map(|session| log_in(&session)).unwrap_or_default()
}

/// Returns the events of the session with this id.
pub(crate) fn session_log(fixture: &CaseFixture, id: &str) -> Vec<Value> {
    log_in(&fixture.state().join("sessions").join(id))
}

fn log_in(session: &Path) -> Vec<Value> {
    let text = std::fs::read(log_file(session)).unwrap_or_default();
    events(&String::from_utf8_lossy(&text))
}

/// Parses events, one per line; other lines are skipped.
pub(crate) fn events(text: &str) -> Vec<Value> {
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|event: &Value| event.is_object())
        .collect()
}

/// Returns the events of one kind.
pub(crate) fn of<'a>(events: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    events.iter().filter(move |event| event["kind"] == kind)
}

/// Derives the decision about one call from the events of its run. The first entry is the most exact one.
pub(crate) fn decided(events: &[Value], call: &str, mode: &str) -> Vec<Decision> {
    let asked =
        of(events, "asked").any(|event| event["data"]["ask"]["about"]["call"]["id"] == call);
    let started = of(events, "call_started").any(|event| event["data"]["call"]["id"] == call);
    let ran = of(events, "command_started").any(|event| event["data"]["call"] == call);
    let refused = of(events, "connection_refused").next().is_some();
    let result = of(events, "call_finished").find(|event| event["data"]["result"]["id"] == call);
    let error = result.and_then(|event| event["data"]["result"]["error"].as_str());
    if of(events, "denied").any(|event| event["data"]["call"] == call) {
        return vec![Decision::Deny];
    }
    if asked && !started {
        // Without a user to ask, a question is a refusal.
        return vec![if mode == "ci" {
            Decision::Deny
        } else {
            Decision::Ask
        }];
    }
    match (started, error) {
        (false, Some(_)) => vec![Decision::Deny],
        (false, None) => Vec::new(),
        (true, Some("blocked" | "denied" | "sandbox")) => vec![Decision::Deny, Decision::Contained],
        (true, _) if ran && refused => vec![Decision::Contained, Decision::Deny],
        (true, _) if ran => vec![Decision::Allow, Decision::Contained],
        (true, Some(_)) => vec![Decision::Deny, Decision::Contained],
        (true, None) => vec![Decision::Allow, Decision::Contained],
    }
}

/// Strips the lines that the product adds to a command's output for the model.
pub(crate) fn command_output(text: &str) -> &str {
    let text = match text.strip_prefix("exit code ") {
        Some(rest) => rest.split_once('\n').map_or("", |(_, rest)| rest),
        None => text,
    };
    if text.trim() == "[no output]" {
        ""
    } else {
        text
    }
}
