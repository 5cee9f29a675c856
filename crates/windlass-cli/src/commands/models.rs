//! `models`: lists vendors, and the models with a known price and context window.

use std::process::ExitCode;

use serde_json::json;
use windlass::machine::Credentials;
use windlass::model::{VENDORS, Vendor, configured_base_url};
use windlass::model::{model_rows, table_date};

use super::block_on;
use crate::args::ModelsArgs;
use crate::command_error::CommandError;
use crate::exit;
use crate::process;
use crate::sanitize::{json_line, one_line};
use windlass::settings::Settings;
use windlass::wire;

pub(super) fn run(args: &ModelsArgs) -> Result<ExitCode, CommandError> {
    let settings = process::load_settings(None)?;
    let credentials = Credentials::read(&settings.places.credentials_file())?;
    let states: Vec<_> = VENDORS
        .iter()
        .map(|vendor| (vendor, state(vendor, &settings, &credentials)))
        .collect();
    let listed = block_on(list_models(&states, &settings, &credentials, args.ask))?;
    let mut text = String::new();
    for ((vendor, state), served) in states.into_iter().zip(listed) {
        if args.json {
            let ready = state.is_ok() && !matches!(served, Some(Err(_)));
            let (models, error) = match served {
                Some(Ok(models)) => (Some(models), None),
                Some(Err(why)) => (None, Some(why)),
                None => (None, None),
            };
            let state = state.unwrap_or_else(|why| why);
            let row = json!({ "vendor": vendor.id, "ready": ready, "state": state, "serves": models, "error": error });
            text.push_str(&json_line(&row));
            continue;
        }
        let (mark, why) = match (state, &served) {
            (Ok(why), Some(Err(err))) if vendor.local => ("absent ", format!("{why} ({err})")),
            (Ok(why), Some(Err(err))) => ("failing", format!("{why} ({err})")),
            (Ok(why), _) => ("ready  ", why),
            (Err(why), _) => ("missing", why),
        };
        text.push_str(&format!("{:<21} {mark}  {}\n", vendor.id, one_line(&why)));
        for model in served.and_then(Result::ok).unwrap_or_default() {
            text.push_str(&format!("  serves {}/{}\n", vendor.id, one_line(&model)));
        }
    }
    if !args.json {
        let prices = match args.prices {
            true => format!("prices of {}, in USD per million tokens", table_date()),
            false => "`--prices` shows prices".to_owned(),
        };
        text.push_str(&format!("\nknown models ({prices}):\n"));
    }
    for row in model_rows() {
        let usd = |micros: u64| micros as f64 / 1_000_000.0;
        if args.json {
            let price = row.price;
            let row = json!({
                "vendor": row.vendor, "model": row.name, "context_window": row.context_window,
                "max_output": row.max_output, "input_usd": usd(price.input), "output_usd": usd(price.output),
                "cache_read_usd": usd(price.cache_read), "cache_write_usd": usd(price.cache_write),
                "batch_percent": row.batch_percent,
            });
            text.push_str(&json_line(&row));
        } else if args.prices {
            let name = format!("{}/{}", row.vendor, row.name);
            let (price, batch) = (
                row.price,
                row.batch_percent
                    .map_or_else(String::new, |part| format!("  batch {part} %")),
            );
            let figures = [
                ("in", price.input),
                ("out", price.output),
                ("cache read", price.cache_read),
                ("write", price.cache_write),
            ];
            let figures = figures
                .map(|(what, micros)| format!("{what} {:>8.3}", usd(micros)))
                .join("  ");
            text.push_str(&format!("  {name:<44} {figures}{batch}\n"));
        } else {
            text.push_str(&format!("  {}/{}\n", row.vendor, row.name));
        }
    }
    Ok(exit::print(&text))
}

/// Queries the models of local servers, and with `all` of every vendor that is set up. The result is `None` for vendors
/// that were not queried.
async fn list_models(
    states: &[(&Vendor, Result<String, String>)],
    settings: &Settings,
    credentials: &Credentials,
    all: bool,
) -> Result<Vec<Option<Result<Vec<String>, String>>>, CommandError> {
    let queries = states.iter().map(|(vendor, state)| async move {
        if state.is_err() || !(vendor.local || all) {
            return None;
        }
        let base = configured_base_url(vendor, settings);
        let provider = match wire::served(settings, vendor, base, credentials) {
            Ok(provider) => provider,
            Err(error) => return Some(Err(error.message().to_owned())),
        };
        Some(provider.models().await.map_err(|err| err.to_string()))
    });
    Ok(futures_util::future::join_all(queries).await)
}

/// Describes the access to a vendor, or the missing key or address.
pub(super) fn state(
    vendor: &Vendor,
    settings: &Settings,
    credentials: &Credentials,
) -> Result<String, String> {
    let configured = configured_base_url(vendor, settings);
    let Some(url) = configured.as_deref().or(vendor.base_url) else {
        return Err("needs an address: `--base-url URL`".to_owned());
    };
    if vendor.local {
        return Ok(format!("local server at {url}; no key, no price"));
    }
    match (wire::key(settings, vendor, credentials), vendor.key_env) {
        (Some(_), _) => Ok(format!("key is set; {url}")),
        (None, _) if wire::aws_keys(vendor, &settings.environment).is_some() => {
            Ok(format!("signing keys are set; {url}"))
        }
        (None, Some(env)) => Err(format!("no key: set {env}")),
        (None, None) => Ok(format!("{url}, without a key")),
    }
}
