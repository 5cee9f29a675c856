//! Keys of vendors and logins of agents: where they come from, and changes of the credentials file. No function returns a
//! key or reads the login of an agent.
//!
//! ```
//! use windlass::Environment;
//! use windlass::auth::{
//!     AuthKind, AuthRow, AuthSource, auth_rows, check_key_form, check_key_works, keyed_vendor, login_command, remove_key,
//!     store_key,
//! };
//! use windlass::machine::Secret;
//! use windlass::settings::Settings;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let home = tempfile::tempdir()?;
//! let environment = Environment::empty().with("HOME", home.path()).with("PATH", "/usr/bin:/bin");
//! let settings = Settings::load(None, environment)?;
//! let (vendor, key) = (keyed_vendor("openai")?, Secret::new("sk-proj-0123456789abcdef"));
//! check_key_form(vendor, &key)?;
//! assert!(check_key_form(keyed_vendor("anthropic")?, &key).is_err(), "it has the form of another vendor");
//! assert!(store_key(vendor, &key, &settings)?.is_none(), "no variable takes precedence");
//!
//! let rows: Vec<AuthRow> = auth_rows(&settings)?;
//! assert_eq!((rows[0].name.as_str(), rows[0].ending.as_deref()), ("openai", Some("cdef")));
//! assert_eq!((rows[0].kind, rows[0].source), (AuthKind::Vendor, AuthSource::CredentialsFile));
//! assert!(remove_key("openai", &settings)?);
//!
//! let local = Secret::new("0123456789abcdef");
//! assert!(check_key_works(keyed_vendor("azure")?, &local, &settings).await.is_err(), "it has no list of models");
//! assert!(login_command("claude-code", &settings).is_err(), "it is not installed here");
//! # Ok(())
//! # }
//! ```

use schemars::JsonSchema;
use serde::Serialize;
use windlass_host::config::nearest;
use windlass_host::secret::{Credentials, Secret};
use windlass_providers::{VENDORS, Vendor, vendor};
use windlass_registry::InstalledAgents;
use windlass_runtimes::agents::{AGENTS, AgentSpec};

use crate::error::{Error, ErrorKind};
use crate::model::configured_base_url;
use crate::runtime_plan::signed_in;
use crate::settings::Settings;
use crate::wire;

/// The longest key in bytes.
const MAX_KEY: usize = 8 << 10;
/// A shorter text is not a key.
const MIN_KEY: usize = 8;

/// The beginnings of keys that only one vendor uses.
const KEY_BEGINNINGS: &[(&str, &str)] = &[
    ("sk-ant-", "anthropic"),
    ("sk-proj-", "openai"),
    ("sk-svcacct-", "openai"),
    ("sk-or-", "openrouter"),
    ("gsk_", "groq"),
    ("xai-", "xai"),
    ("AIza", "gemini"),
];
/// Vendors whose own keys are known, so that a key of another vendor is a mistake. Others accept any key, as a proxy does.
const OWN_KEYS: &[&str] = &[
    "anthropic",
    "openai",
    "openai-chat",
    "openrouter",
    "groq",
    "xai",
    "gemini",
    "deepseek",
    "mistral",
];

/// A key or a login that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AuthRow {
    /// The vendor or the agent. A name of the credentials file may belong to neither.
    pub name: String,
    pub kind: AuthKind,
    pub source: AuthSource,
    /// The name of the variable, or the path of the file.
    pub place: String,
    /// The last four characters of a long key.
    pub ending: Option<String>,
    /// Whether it is used; a variable takes precedence over the credentials file.
    pub used: bool,
    /// Further vendors that use the same variable.
    pub also_for: Vec<&'static str>,
}

/// The owner of a key or a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthKind {
    Vendor,
    Agent,
    /// A name of the credentials file that no vendor has.
    Unknown,
}

/// The origin of a key or a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthSource {
    Environment,
    CredentialsFile,
    /// The file of the agent's own login, which Windlass does not read.
    AgentLogin,
}

/// All keys and logins on this machine: variables, the credentials file, and the logins of agents.
pub fn auth_rows(settings: &Settings) -> Result<Vec<AuthRow>, Error> {
    let file = settings.places.credentials_file();
    let credentials = Credentials::read(&file)?;
    let mut rows: Vec<AuthRow> = Vec::new();
    for vendor in VENDORS {
        for (variable, key) in vendor_variables(vendor, settings) {
            let same =
                |row: &&mut AuthRow| row.source == AuthSource::Environment && row.place == variable;
            match rows.iter_mut().find(same) {
                Some(row) => row.also_for.push(vendor.id),
                None => rows.push(AuthRow {
                    name: vendor.id.to_owned(),
                    kind: AuthKind::Vendor,
                    source: AuthSource::Environment,
                    place: variable,
                    ending: Secret::new(key).ending().map(str::to_owned),
                    used: true,
                    also_for: Vec::new(),
                }),
            }
        }
    }
    for name in credentials.names() {
        let known = vendor(name);
        let shadowed = known.is_some_and(|known| key_variable(known, settings).is_some());
        rows.push(AuthRow {
            name: name.to_owned(),
            kind: known.map_or(AuthKind::Unknown, |_| AuthKind::Vendor),
            source: AuthSource::CredentialsFile,
            place: file.display().to_string(),
            ending: credentials
                .get(name)
                .and_then(Secret::ending)
                .map(str::to_owned),
            used: known.is_some() && !shadowed,
            also_for: Vec::new(),
        });
    }
    let logins = AGENTS.iter().filter_map(|agent| {
        let path = signed_in(agent, agent.name, settings)?;
        Some(AuthRow {
            name: agent.name.to_owned(),
            kind: AuthKind::Agent,
            source: AuthSource::AgentLogin,
            place: path.display().to_string(),
            ending: None,
            used: settings
                .layers
                .text(&Settings::named("runtimes", agent.name, "auth"))
                == Some("login"),
            also_for: Vec::new(),
        })
    });
    rows.extend(logins);
    Ok(rows)
}

/// The variables with keys of a vendor that are set: the key, or the keys that sign requests.
fn vendor_variables(vendor: &Vendor, settings: &Settings) -> Vec<(String, String)> {
    if let Some(variable) = key_variable(vendor, settings) {
        let key = settings.environment.text(&variable).unwrap_or_default();
        return vec![(variable, key)];
    }
    match wire::aws_keys(vendor, &settings.environment) {
        Some(keys) => vec![("AWS_ACCESS_KEY_ID".to_owned(), keys.access_key)],
        None => Vec::new(),
    }
}

/// The variable with the key of a vendor, if it is set.
pub(crate) fn key_variable(vendor: &Vendor, settings: &Settings) -> Option<String> {
    let configured = settings
        .layers
        .text(&Settings::named("providers", vendor.id, "key_env"));
    let name = configured.or(vendor.key_env)?;
    let key = settings.environment.text(name)?;
    (!key.trim().is_empty()).then(|| name.to_owned())
}

/// The vendor with this name, if it can have a key.
pub fn keyed_vendor(name: &str) -> Result<&'static Vendor, Error> {
    let keyed = || VENDORS.iter().filter(|vendor| !vendor.local);
    match vendor(name) {
        Some(found) if found.local => Err(Error::usage(format!(
            "`{name}` runs on your machine and needs no key"
        ))
        .hint(format!(
            "start it, then `windlass run -m {name}/MODEL \"…\"`"
        ))),
        Some(found) => Ok(found),
        None => {
            let error = Error::usage(format!("there is no vendor `{name}`"));
            let all: Vec<&str> = keyed().map(|vendor| vendor.id).collect();
            Err(match nearest(name, all.iter().copied()) {
                Some(near) => error.hint(format!("did you mean `{near}`?")),
                None => error.hint(format!("the vendors are {}", all.join(", "))),
            })
        }
    }
}

/// Checks that a text can be a key of the vendor. The error does not contain the text.
pub fn check_key_form(vendor: &Vendor, key: &Secret) -> Result<(), Error> {
    let text = key.expose();
    let wrong = |what: &str, hint: &str| Err(Error::usage(what).hint(hint));
    if text.trim().is_empty() {
        return wrong(
            "there is no key",
            "paste the key, or pipe it to the command",
        );
    }
    if text.contains(['=', '"', '\'']) && text.to_ascii_lowercase().contains("key") {
        return wrong(
            "this looks like an assignment and not like a key",
            "give only the value, without the name and without quotes",
        );
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return wrong(
            "the key contains blanks, line breaks or characters that are not ASCII",
            "copy it again, completely and alone",
        );
    }
    if text.len() < MIN_KEY {
        return wrong("the key is too short", "copy it again, completely");
    }
    if text.len() > MAX_KEY {
        return wrong("the key is too long", "copy it again, alone");
    }
    let owner = KEY_BEGINNINGS
        .iter()
        .find(|(beginning, _)| text.starts_with(beginning))
        .map(|(_, owner)| *owner);
    match owner {
        Some(owner) if OWN_KEYS.contains(&vendor.id) && !same_key(owner, vendor) => Err(
            Error::usage(format!("this is a key of {owner} and not of {}", vendor.id))
                .hint(format!("`windlass auth login {owner}`")),
        ),
        _ => Ok(()),
    }
}

fn same_key(owner: &str, vendor: &Vendor) -> bool {
    windlass_providers::vendor(owner).is_some_and(|owner| owner.key_env == vendor.key_env)
}

/// Asks the vendor for its models with this key, whatever other key is set up.
pub async fn check_key_works(
    vendor: &'static Vendor,
    key: &Secret,
    settings: &Settings,
) -> Result<(), Error> {
    if vendor.list.is_none() {
        return Err(Error::usage(format!(
            "the key cannot be checked, because `{}` has no list of models",
            vendor.id
        ))
        .hint("omit `--check`; the first run shows whether the key works"));
    }
    let mut settings = settings.clone();
    if let Some(variable) = key_variable(vendor, &settings) {
        settings.environment = settings.environment.without(&variable);
    }
    let credentials = Credentials::default().with(vendor.id, Secret::new(key.expose()));
    let base = configured_base_url(vendor, &settings);
    let provider = wire::served(&settings, vendor, base, &credentials)?;
    provider.models().await.map(drop).map_err(|err| {
        Error::new(
            ErrorKind::Provider,
            format!("{} did not accept the key: {err}", vendor.id),
        )
        .hint("nothing was stored; copy the key again, or omit `--check` if the vendor cannot be reached now")
    })
}

/// Stores a key in the credentials file. Returns the variable that takes precedence over it, if one is set.
pub fn store_key(
    vendor: &Vendor,
    key: &Secret,
    settings: &Settings,
) -> Result<Option<String>, Error> {
    check_key_form(vendor, key)?;
    Credentials::store(&settings.places.credentials_file(), vendor.id, key)?;
    Ok(key_variable(vendor, settings))
}

/// Removes a key from the credentials file. Returns whether there was one.
pub fn remove_key(name: &str, settings: &Settings) -> Result<bool, Error> {
    Ok(Credentials::remove(
        &settings.places.credentials_file(),
        name,
    )?)
}

/// The command with which an agent signs the user in: the path of its program, and the arguments.
pub fn login_command(name: &str, settings: &Settings) -> Result<Vec<String>, Error> {
    let known: &AgentSpec = windlass_runtimes::agents::agent(name)
        .ok_or_else(|| Error::usage(format!("there is no agent `{name}`")))?;
    let args = known.login.map_or(&[][..], |login| login.args);
    if args.is_empty() {
        let error = Error::usage(format!("windlass knows no login command of `{name}`"));
        return Err(match known.login {
            Some(_) => error.hint("start the agent itself and sign in there"),
            None => error.hint("it works with the key of a vendor: `windlass auth login VENDOR`"),
        });
    }
    let configured = settings
        .layers
        .text(&Settings::named("runtimes", name, "command"));
    let dir = settings.places.runtimes_dir();
    let program = InstalledAgents { dir: &dir }.find(known, configured)?;
    let program = program.file.display().to_string();
    let args = args.iter().map(|arg| (*arg).to_owned());
    Ok(std::iter::once(program).chain(args).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]

    use super::*;
    use crate::environment::Environment;

    #[test]
    fn the_form_of_a_key_is_checked_without_quoting_it() {
        let check = |name: &str, key: &str, expect: Option<&str>| {
            let found = check_key_form(keyed_vendor(name).unwrap(), &Secret::new(key));
            let text = found.err().map(|error| error.text());
            match (&text, expect) {
                (None, None) => {}
                (Some(text), Some(part)) => {
                    assert!(text.contains(part), "{text}");
                    assert!(key.trim().is_empty() || !text.contains(key), "{text}");
                }
                _ => panic!("{name}: {text:?}"),
            }
        };
        check("anthropic", "sk-ant-0123456789", None);
        check("openai", "sk-0123456789", None);
        check("openai-chat", "sk-proj-0123456789", None);
        check(
            "openai",
            "sk-ant-0123456789",
            Some("of anthropic and not of openai"),
        );
        check(
            "anthropic",
            "sk-proj-0123456789",
            Some("windlass auth login openai"),
        );
        // A proxy may take the key of any vendor.
        check("anthropic-compatible", "sk-proj-0123456789", None);
        check("litellm", "sk-ant-0123456789", None);
        check("openai", "", Some("there is no key"));
        check("openai", "  \n", Some("there is no key"));
        check("openai", "abc12", Some("too short"));
        check("openai", "sk-one two three", Some("blanks"));
        check("openai", "sk-ünïcödé-key", Some("not ASCII"));
        check("openai", "OPENAI_API_KEY=sk-0123456789", Some("assignment"));
        check("openai", &"x".repeat(MAX_KEY + 1), Some("too long"));
        assert!(
            keyed_vendor("ollama")
                .unwrap_err()
                .text()
                .contains("needs no key")
        );
        assert!(
            keyed_vendor("antropic")
                .unwrap_err()
                .text()
                .contains("`anthropic`")
        );
    }

    #[test]
    fn rows_say_where_a_key_comes_from_and_which_one_is_used() {
        let home = tempfile::tempdir().unwrap();
        let environment = Environment::empty()
            .with("HOME", home.path())
            .with("OPENAI_API_KEY", "sk-env-0123456789abcdef");
        let settings = Settings::load(None, environment).unwrap();
        let openai = keyed_vendor("openai").unwrap();
        let key = Secret::new("sk-file-0123456789ghijkl");
        let shadowing = store_key(openai, &key, &settings).unwrap();
        assert_eq!(shadowing.as_deref(), Some("OPENAI_API_KEY"));
        store_key(
            keyed_vendor("groq").unwrap(),
            &Secret::new("gsk_short"),
            &settings,
        )
        .unwrap();
        let rows = auth_rows(&settings).unwrap();
        let found: Vec<_> = rows
            .iter()
            .map(|row| {
                (
                    row.name.as_str(),
                    row.source,
                    row.ending.as_deref(),
                    row.used,
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                ("openai", AuthSource::Environment, Some("cdef"), true),
                ("groq", AuthSource::CredentialsFile, None, true),
                ("openai", AuthSource::CredentialsFile, Some("ijkl"), false),
            ]
        );
        assert_eq!(rows[0].also_for, ["openai-chat"]);
        assert!(!format!("{rows:?}").contains("0123456789"), "{rows:?}");
    }

    #[test]
    fn the_login_of_an_agent_is_found_and_not_read() {
        let home = tempfile::tempdir().unwrap();
        let login = home.path().join(".claude/.credentials.json");
        std::fs::create_dir_all(login.parent().unwrap()).unwrap();
        std::fs::write(&login, "hunter2").unwrap();
        let environment = Environment::empty().with("HOME", home.path());
        let rows = auth_rows(&Settings::load(None, environment).unwrap()).unwrap();
        let row = rows.iter().find(|row| row.name == "claude-code").unwrap();
        assert_eq!((row.source, row.used), (AuthSource::AgentLogin, false));
        assert_eq!(row.place, login.display().to_string());
        assert!(!format!("{rows:?}").contains("hunter2"));
    }

    #[test]
    fn an_agent_signs_the_user_in_with_its_own_program() {
        let home = tempfile::tempdir().unwrap();
        let program = home.path().join("claude");
        std::fs::write(&program, "#!/bin/sh\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        let config = home.path().join(".config/windlass/config.toml");
        std::fs::create_dir_all(config.parent().unwrap()).unwrap();
        let text = format!("runtimes.claude-code.command = \"{}\"\n", program.display());
        std::fs::write(&config, text).unwrap();
        let environment = Environment::empty().with("HOME", home.path());
        let settings = Settings::load(None, environment).unwrap();
        let command = login_command("claude-code", &settings).unwrap();
        assert_eq!(command, [program.to_str().unwrap(), "auth", "login"]);
        let text = |name: &str| login_command(name, &settings).unwrap_err().text();
        assert!(text("native").contains("auth login VENDOR"));
        assert!(text("gemini-cli").contains("start the agent itself"));
        assert!(text("no-such").contains("there is no agent"));
    }
}
