//! Tokens of a server. The main token is stored where the CLI, the SDKs and the web page of the same user find it, in a file
//! that only its owner can read. Named tokens are stored as hashes, have scopes and can be revoked.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use windlass::core::clock::Timestamp;

use crate::access::{Caller, Ceiling, Scope};
use crate::private_file;
use crate::problem::{Problem, ProblemCode};

/// The name of the main token.
pub(crate) const MAIN: &str = "main";
/// The prefix of every token, so that secret scanners recognise it.
const PREFIX: &str = "wdl_";
/// Maximum number of named tokens.
const MAX_TOKENS: usize = 1_000;
/// Time for which a login link can be used.
const TICKET_SECONDS: u64 = 300;
/// Maximum number of login links and browser logins.
const MAX_LOGINS: usize = 1_000;

/// A named token, without its secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Token {
    pub name: String,
    pub scopes: Vec<Scope>,
    /// The only workspaces that the token can see; absent for all of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspaces: Option<Vec<PathBuf>>,
    #[serde(default)]
    pub ceiling: Ceiling,
    /// The most that all runs of the token may cost together, in US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_usd: Option<f64>,
    pub created: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct StoredToken {
    #[serde(flatten)]
    token: Token,
    /// The hash of the secret.
    hash: String,
}

/// The tokens of a server.
pub(crate) struct Tokens {
    dir: PathBuf,
    state: Mutex<TokenState>,
}

struct TokenState {
    main: [u8; 32],
    named: Vec<(Token, [u8; 32])>,
    /// The modification time of the file when it was read: another process may have changed it.
    read_at: Option<SystemTime>,
    tickets: Vec<(u64, [u8; 32])>,
    logins: Vec<([u8; 32], String)>,
}

fn hash(secret: &str) -> [u8; 32] {
    *blake3::hash(secret.as_bytes()).as_bytes()
}

/// A secret of 256 bits.
fn fresh_secret() -> Result<String, Problem> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|err| {
        Problem::new(
            ProblemCode::Internal,
            format!("the system random number generator failed: {err}"),
        )
    })?;
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Reads the main token of this user, for clients on the same machine. It is created if it is missing.
pub fn main_token(server_dir: &Path) -> Result<String, Problem> {
    let path = server_dir.join("token");
    if let Some(text) = private_file::read(&path)? {
        let text = text.trim();
        if text.starts_with(PREFIX) && text.len() >= 40 {
            return Ok(text.to_owned());
        }
    }
    let secret = fresh_secret()?;
    private_file::write(&path, format!("{secret}\n").as_bytes())?;
    Ok(secret)
}

impl Tokens {
    pub(crate) fn open(dir: &Path) -> Result<Self, Problem> {
        let main = hash(&main_token(dir)?);
        let tokens = Self {
            dir: dir.to_owned(),
            state: Mutex::new(TokenState {
                main,
                named: Vec::new(),
                read_at: None,
                tickets: Vec::new(),
                logins: Vec::new(),
            }),
        };
        tokens.refresh(&mut tokens.state.lock())?;
        Ok(tokens)
    }

    fn file(&self) -> PathBuf {
        self.dir.join("tokens.json")
    }

    /// Reads the file again if it changed.
    fn refresh(&self, state: &mut TokenState) -> Result<(), Problem> {
        let changed = std::fs::metadata(self.file())
            .and_then(|meta| meta.modified())
            .ok();
        if changed == state.read_at {
            return Ok(());
        }
        let text = private_file::read(&self.file())?.unwrap_or_else(|| "[]".to_owned());
        let stored: Vec<StoredToken> = serde_json::from_str(&text).map_err(|err| {
            Problem::new(
                ProblemCode::Internal,
                format!("{} cannot be read: {err}", self.file().display()),
            )
            .hint("restore the file, or delete it and add the tokens again")
        })?;
        let hashed = |one: StoredToken| {
            let bytes = URL_SAFE_NO_PAD.decode(&one.hash).ok()?;
            Some((one.token, <[u8; 32]>::try_from(bytes).ok()?))
        };
        state.named = stored.into_iter().filter_map(hashed).collect();
        state.read_at = changed;
        Ok(())
    }

    fn save(&self, state: &mut TokenState) -> Result<(), Problem> {
        let stored: Vec<StoredToken> = state
            .named
            .iter()
            .map(|(token, hash)| StoredToken {
                token: token.clone(),
                hash: URL_SAFE_NO_PAD.encode(hash),
            })
            .collect();
        let text = serde_json::to_vec_pretty(&stored)
            .map_err(|err| Problem::new(ProblemCode::Internal, err.to_string()))?;
        private_file::write(&self.file(), &text)?;
        state.read_at = std::fs::metadata(self.file())
            .and_then(|meta| meta.modified())
            .ok();
        Ok(())
    }

    /// Adds a token and returns its secret, which is not stored.
    pub(crate) fn add(&self, token: Token) -> Result<String, Problem> {
        let name_fits = !token.name.is_empty()
            && token.name.len() <= 64
            && token
                .name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        if !name_fits || token.name == MAIN {
            return Err(Problem::invalid(format!(
                "`{}` is not a name for a token: use 1 to 64 letters, digits, `-`, `_` or `.`, and not `{MAIN}`",
                token
                    .name
                    .chars()
                    .take(80)
                    .filter(|c| !c.is_control())
                    .collect::<String>()
            )));
        }
        if token.scopes.is_empty() {
            return Err(Problem::invalid(
                "a token needs at least one scope: read, approve, run or admin",
            ));
        }
        let mut state = self.state.lock();
        self.refresh(&mut state)?;
        if state.named.iter().any(|(one, _)| one.name == token.name) {
            return Err(Problem::new(
                ProblemCode::Conflict,
                format!("there is a token `{}` already", token.name),
            )
            .hint("revoke it first, or use another name"));
        }
        if state.named.len() >= MAX_TOKENS {
            return Err(Problem::new(
                ProblemCode::TooManyRequests,
                format!("there are {MAX_TOKENS} tokens already"),
            )
            .hint("revoke tokens that are not used"));
        }
        let secret = fresh_secret()?;
        state.named.push((token, hash(&secret)));
        self.save(&mut state)?;
        Ok(secret)
    }

    /// Revokes a token. Requests with it are refused from now on.
    pub(crate) fn revoke(&self, name: &str) -> Result<(), Problem> {
        let mut state = self.state.lock();
        self.refresh(&mut state)?;
        let before = state.named.len();
        state.named.retain(|(token, _)| token.name != name);
        if state.named.len() == before {
            return Err(
                Problem::new(ProblemCode::NotFound, format!("there is no token `{name}`"))
                    .hint("`GET /v1/tokens` lists the tokens"),
            );
        }
        state.logins.retain(|(_, owner)| owner != name);
        self.save(&mut state)
    }

    pub(crate) fn list(&self) -> Result<Vec<Token>, Problem> {
        let mut state = self.state.lock();
        self.refresh(&mut state)?;
        Ok(state.named.iter().map(|(token, _)| token.clone()).collect())
    }

    /// The token of this name.
    pub(crate) fn named(&self, name: &str) -> Option<Token> {
        let state = self.state.lock();
        let mut named = state.named.iter();
        named
            .find(|(token, _)| token.name == name)
            .map(|(token, _)| token.clone())
    }

    /// The caller with this secret. The comparison takes the same time for every secret of the same length.
    pub(crate) fn caller(&self, secret: &str) -> Option<Caller> {
        let given = hash(secret);
        let mut state = self.state.lock();
        // A damaged file must not lock the main token out.
        let _ = self.refresh(&mut state);
        let mut found = None;
        for (token, hash) in &state.named {
            if bool::from(hash.ct_eq(&given)) {
                found = Some(caller_of(token));
            }
        }
        if bool::from(state.main.ct_eq(&given)) {
            found = Some(main_caller());
        }
        found
    }

    /// Whether the token of a caller was not revoked since.
    pub(crate) fn is_valid(&self, caller: &Caller) -> bool {
        match caller.token.as_deref() {
            None | Some(MAIN) => true,
            Some(name) => {
                let mut state = self.state.lock();
                // If the file cannot be read, the tokens that were read last apply.
                let _ = self.refresh(&mut state);
                state.named.iter().any(|(token, _)| token.name == name)
            }
        }
    }

    /// A one-time code for a login link.
    pub(crate) fn ticket(&self) -> Result<String, Problem> {
        let secret = fresh_secret()?;
        let mut state = self.state.lock();
        let now = unix_seconds();
        state.tickets.retain(|(until, _)| *until > now);
        if state.tickets.len() >= MAX_LOGINS {
            state.tickets.remove(0);
        }
        state.tickets.push((now + TICKET_SECONDS, hash(&secret)));
        Ok(secret)
    }

    /// Exchanges the code of a login link for the value of a browser's cookie. A code can be used once.
    pub(crate) fn login(&self, ticket: &str) -> Result<Option<String>, Problem> {
        let given = hash(ticket);
        let mut state = self.state.lock();
        let now = unix_seconds();
        let before = state.tickets.len();
        state
            .tickets
            .retain(|(until, hash)| *until > now && !bool::from(hash.ct_eq(&given)));
        let valid = state.tickets.len() + 1 == before;
        if !valid {
            return Ok(None);
        }
        let cookie = fresh_secret()?;
        if state.logins.len() >= MAX_LOGINS {
            state.logins.remove(0);
        }
        state.logins.push((hash(&cookie), MAIN.to_owned()));
        Ok(Some(cookie))
    }

    /// The caller that logged in with this cookie.
    pub(crate) fn caller_of_cookie(&self, cookie: &str) -> Option<Caller> {
        let given = hash(cookie);
        let state = self.state.lock();
        let mut found = false;
        for (hash, _) in &state.logins {
            found |= bool::from(hash.ct_eq(&given));
        }
        found.then(main_caller)
    }
}

fn main_caller() -> Caller {
    Caller::of_token(MAIN, &Scope::ALL, None, &Ceiling::default())
}

fn caller_of(token: &Token) -> Caller {
    Caller::of_token(
        &token.name,
        &token.scopes,
        token.workspaces.as_deref(),
        &token.ceiling,
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn token(name: &str, scopes: &[Scope]) -> Token {
        Token {
            name: name.to_owned(),
            scopes: scopes.to_vec(),
            workspaces: None,
            ceiling: Ceiling::default(),
            budget_usd: None,
            created: Timestamp::from_millis(0),
        }
    }

    #[test]
    fn a_token_works_until_it_is_revoked_also_in_another_process() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (
            Tokens::open(dir.path()).unwrap(),
            Tokens::open(dir.path()).unwrap(),
        );
        let secret = one.add(token("ci", &[Scope::Read])).unwrap();
        let caller = one.caller(&secret).unwrap();
        assert!(caller.has(Scope::Read) && !caller.has(Scope::Run));
        assert_eq!(other.caller(&secret).unwrap().token.as_deref(), Some("ci"));
        assert!(
            one.add(token("ci", &[Scope::Read])).is_err(),
            "the name is taken"
        );
        one.revoke("ci").unwrap();
        assert!(one.caller(&secret).is_none());
        assert!(one.revoke("ci").is_err());
        let main = main_token(dir.path()).unwrap();
        assert!(one.caller(&main).unwrap().has(Scope::Admin));
        assert!(one.caller("wdl_wrong").is_none());
        let stored = std::fs::read_to_string(dir.path().join("tokens.json")).unwrap();
        assert!(!stored.contains(&secret));
    }

    /// The corpus of attacks refers to this test: the time of a comparison cannot be measured from outside.
    #[test]
    fn secrets_are_compared_in_constant_time() {
        let source = include_str!("tokens.rs");
        let (code, _) = source.split_once("#[cfg(test)]").unwrap();
        let constant = code.matches(".ct_eq(&given)").count();
        assert_eq!(constant, 4, "each search compares hashes with `subtle`");
        let is_compared = |line: &&str| {
            (line.contains("==") || line.contains("!="))
                && ["hash", "secret", "given"]
                    .iter()
                    .any(|name| line.contains(name))
        };
        assert_eq!(
            code.lines().find(is_compared),
            None,
            "a secret is compared in another way"
        );
    }

    #[test]
    fn bad_names_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(dir.path()).unwrap();
        for name in ["", "main", "a b", "../x", &"x".repeat(65)] {
            assert!(tokens.add(token(name, &[Scope::Read])).is_err(), "{name}");
        }
        assert!(tokens.add(token("none", &[])).is_err());
    }

    #[test]
    fn a_login_link_works_once() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(dir.path()).unwrap();
        let ticket = tokens.ticket().unwrap();
        let cookie = tokens.login(&ticket).unwrap().unwrap();
        assert!(tokens.login(&ticket).unwrap().is_none());
        assert!(tokens.caller_of_cookie(&cookie).is_some());
        assert!(tokens.caller_of_cookie(&ticket).is_none());
    }

    #[test]
    fn the_token_file_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        main_token(dir.path()).unwrap();
        let mode = std::fs::metadata(dir.path().join("token"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
