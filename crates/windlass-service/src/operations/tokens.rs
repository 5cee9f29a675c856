//! Operations on tokens: list, add and revoke them.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass::core::clock::Clock;
use windlass::machine::SystemClock;

use super::{Call, Done, Json, Method, NoParams, Operation, refuse_if_interrupted};
use crate::access::{Ceiling, Scope};
use crate::problem::Problem;
use crate::schema::{ABSOLUTE_PATH, TOKEN_NAME, object};
use crate::tokens::{MAIN, Token};

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new(
            "tokens.list",
            (Method::Get, "/v1/tokens", 200),
            Scope::Admin,
            "List the named tokens with their spending, without their secrets",
            list,
        ),
        Operation::new(
            "tokens.add",
            (Method::Post, "/v1/tokens", 201),
            Scope::Admin,
            "Add a token; the reply has its secret, which is not stored",
            add,
        ),
        Operation::new(
            "tokens.revoke",
            (Method::Delete, "/v1/tokens/{name}", 200),
            Scope::Admin,
            "Revoke a token; requests with it are refused from now on",
            revoke,
        ),
        Operation::new(
            "logins.create",
            (Method::Post, "/v1/logins", 201),
            Scope::Admin,
            "Make a one-time login link for a browser, valid for five minutes",
            login,
        ),
    ]
}

/// A one-time login link.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LoginLink {
    /// The path and query of the link on this server.
    pub path: String,
}

async fn login(call: Call, _: NoParams) -> Result<Json<LoginLink>, Problem> {
    let ticket = call.service.login_ticket()?;
    Ok(Json(LoginLink {
        path: format!("/login?ticket={ticket}"),
    }))
}

/// A token in the list.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct TokenItem {
    #[serde(flatten)]
    pub token: Token,
    /// The amount that its runs spent, in US dollars.
    pub spent_usd: f64,
}

async fn list(call: Call, _: NoParams) -> Result<Json<Vec<TokenItem>>, Problem> {
    let (_, spent) = call.service.0.spending.totals();
    let tokens = call.service.0.tokens.list()?.into_iter();
    let item = |token: Token| TokenItem {
        spent_usd: spent.get(&token.name).copied().unwrap_or(0) as f64 / 1e6,
        token,
    };
    Ok(Json(tokens.map(item).collect()))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AddParams {
    /// A name that no other token has.
    #[schemars(regex(pattern = TOKEN_NAME), extend("not" = { "const": MAIN }))]
    name: String,
    #[schemars(length(min = 1))]
    scopes: Vec<Scope>,
    /// The only workspaces that the token can see, as absolute paths.
    #[serde(default)]
    #[schemars(inner(regex(pattern = ABSOLUTE_PATH)))]
    workspaces: Option<Vec<PathBuf>>,
    #[serde(default, deserialize_with = "object")]
    ceiling: Ceiling,
    #[serde(default)]
    #[schemars(extend("exclusiveMinimum" = 0))]
    budget_usd: Option<f64>,
}

/// A new token with its secret.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct TokenAdded {
    pub name: String,
    /// Send it as `Authorization: Bearer SECRET`.
    pub secret: String,
}

async fn add(call: Call, params: AddParams) -> Result<Json<TokenAdded>, Problem> {
    refuse_if_interrupted(
        &call,
        "list the tokens, and revoke the one of the first attempt",
    )?;
    let amounts = [
        ("budget_usd", params.budget_usd),
        ("max_budget_usd", params.ceiling.max_budget_usd),
    ];
    for (name, amount) in amounts {
        if amount.is_some_and(|usd| !usd.is_finite() || usd <= 0.0) {
            return Err(Problem::invalid(format!(
                "`{name}` must be a number above zero"
            )));
        }
    }
    let mut workspaces = Vec::new();
    for dir in params.workspaces.iter().flatten() {
        // A relative path depends on the directory of the server, which the caller does not know.
        if !dir.is_absolute() {
            return Err(Problem::invalid(format!(
                "`{}` is not an absolute path",
                dir.display()
            )));
        }
        let real = std::fs::canonicalize(dir);
        workspaces.push(real.map_err(|err| {
            Problem::unprocessable(format!(
                "the workspace {} cannot be used: {err}",
                dir.display()
            ))
        })?);
    }
    let token = Token {
        name: params.name.clone(),
        scopes: params.scopes,
        workspaces: params.workspaces.is_some().then_some(workspaces),
        ceiling: params.ceiling,
        budget_usd: params.budget_usd,
        created: SystemClock::new().now(),
    };
    let secret = call.service.0.tokens.add(token)?;
    Ok(Json(TokenAdded {
        name: params.name,
        secret,
    }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RevokeParams {
    name: String,
}

async fn revoke(call: Call, params: RevokeParams) -> Result<Json<Done>, Problem> {
    match call.service.0.tokens.revoke(&params.name) {
        Err(problem) if !call.interrupted => Err(problem),
        _ => Ok(Json(Done {})),
    }
}
