//! Vendors with the access to them, and known models with their prices, as rows for people and programs.
//!
//! ```
//! use windlass::machine::Credentials;
//! use windlass::model::{KnownModel, VENDORS, VendorRow, known_models, vendor_access, vendor_rows};
//! use windlass::settings::Settings;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let (settings, credentials) = (Settings::none(dir.path()), Credentials::default());
//! let rows: Vec<VendorRow> = vendor_rows(&settings, &credentials, false).await;
//! let anthropic = rows.iter().find(|row| row.vendor == "anthropic").ok_or("it is known")?;
//! assert!(!anthropic.ready && anthropic.state.contains("ANTHROPIC_API_KEY"));
//! assert!(vendor_access(&VENDORS[0], &settings, &credentials).is_err());
//!
//! let models: Vec<KnownModel> = known_models();
//! assert!(models.iter().any(|model| model.vendor == "anthropic" && model.input_usd > 0.0));
//! # Ok(())
//! # }
//! ```

use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::workspace::Redactor;
use windlass_host::secret::{Credentials, Secrets};
use windlass_providers::models::model_rows;
use windlass_providers::{VENDORS, Vendor};

use super::configured_base_url;
use crate::settings::Settings;
use crate::wire;

/// A vendor and the access to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct VendorRow {
    pub vendor: &'static str,
    /// Whether a key or a local server is set up, and the server answered if it was asked.
    pub ready: bool,
    /// The access in words, or the missing key or address.
    pub state: String,
    /// The models that the server serves; `None` if it was not asked or did not answer.
    pub serves: Option<Vec<String>>,
    /// The reason why a server that was asked did not answer.
    pub error: Option<String>,
    /// Whether the vendor is a server on the user's machine or network, without a key and a price.
    pub local: bool,
}

/// A model with a known price and context window.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct KnownModel {
    pub vendor: &'static str,
    /// The name, or the common prefix of its dated versions.
    pub model: &'static str,
    /// In tokens.
    pub context_window: u64,
    /// In tokens.
    pub max_output: u64,
    /// US dollars per million tokens; so are the other prices.
    pub input_usd: f64,
    pub output_usd: f64,
    pub cache_read_usd: f64,
    pub cache_write_usd: f64,
    /// The price of the vendor's batch API, in percent of the prices above.
    pub batch_percent: Option<u64>,
}

/// All vendors. Local servers that are set up are asked for their models, and all vendors that are set up if `ask_all`
/// is true.
pub async fn vendor_rows(
    settings: &Settings,
    credentials: &Credentials,
    ask_all: bool,
) -> Vec<VendorRow> {
    let secrets = &Secrets::default();
    join_all(VENDORS.iter().map(|vendor| async move {
        let access = vendor_access(vendor, settings, credentials);
        let is_asked = access.is_ok() && (vendor.local || ask_all);
        let (serves, error) = match is_asked {
            true => match served_models(vendor, settings, credentials).await {
                Ok(models) => (Some(models), None),
                Err(why) => (None, Some(why)),
            },
            false => (None, None),
        };
        VendorRow {
            vendor: vendor.id,
            ready: access.is_ok() && error.is_none(),
            // The address may contain a password.
            state: secrets
                .redact(&access.unwrap_or_else(|why| why))
                .into_owned(),
            serves,
            error,
            local: vendor.local,
        }
    }))
    .await
}

async fn served_models(
    vendor: &'static Vendor,
    settings: &Settings,
    credentials: &Credentials,
) -> Result<Vec<String>, String> {
    let base = configured_base_url(vendor, settings);
    let provider = wire::served(settings, vendor, base, credentials)
        .map_err(|error| error.message().to_owned())?;
    provider.models().await.map_err(|err| err.to_string())
}

/// Describes the access to a vendor, or the missing key or address.
pub fn vendor_access(
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

/// The built-in table of models, in its order. [`table_date`](super::table_date) is the date of the prices.
#[must_use]
pub fn known_models() -> Vec<KnownModel> {
    let usd = |micros: u64| micros as f64 / 1_000_000.0;
    model_rows()
        .map(|row| KnownModel {
            vendor: row.vendor,
            model: row.name,
            context_window: row.context_window,
            max_output: row.max_output,
            input_usd: usd(row.price.input),
            output_usd: usd(row.price.output),
            cache_read_usd: usd(row.price.cache_read),
            cache_write_usd: usd(row.price.cache_write),
            batch_percent: row.batch_percent,
        })
        .collect()
}
