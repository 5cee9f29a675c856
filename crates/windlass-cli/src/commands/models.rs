//! `models`: lists vendors, and the models with a known price and context window.

use std::process::ExitCode;

use windlass::machine::Credentials;
use windlass::model::{KnownModel, VendorRow, known_models, table_date, vendor_rows};
use windlass_text::sanitize::one_line;

use super::block_on;
use crate::args::ModelsArgs;
use crate::command_error::CommandError;
use crate::exit;
use crate::process;
use crate::sanitize::json_line;

pub(super) fn run(args: &ModelsArgs) -> Result<ExitCode, CommandError> {
    let settings = process::load_settings(None)?;
    let credentials = Credentials::read(&settings.places.credentials_file())?;
    let vendors = block_on(async { Ok(vendor_rows(&settings, &credentials, args.ask).await) })?;
    let models = known_models();
    if args.json {
        let vendors = vendors.iter().map(json_line);
        let text: String = vendors.chain(models.iter().map(json_line)).collect();
        return Ok(exit::print(&text));
    }
    let mut text: String = vendors.iter().map(vendor).collect();
    let prices = match args.prices {
        true => format!("prices of {}, in USD per million tokens", table_date()),
        false => "`--prices` shows prices".to_owned(),
    };
    text.push_str(&format!("\nknown models ({prices}):\n"));
    text.extend(models.iter().map(|row| model(row, args.prices)));
    Ok(exit::print(&text))
}

fn vendor(row: &VendorRow) -> String {
    let (mark, why) = match &row.error {
        Some(err) if row.local => ("absent ", format!("{} ({err})", row.state)),
        Some(err) => ("failing", format!("{} ({err})", row.state)),
        None if row.ready => ("ready  ", row.state.clone()),
        None => ("missing", row.state.clone()),
    };
    let mut text = format!("{:<21} {mark}  {}\n", row.vendor, one_line(&why));
    for model in row.serves.iter().flatten() {
        text.push_str(&format!("  serves {}/{}\n", row.vendor, one_line(model)));
    }
    text
}

fn model(row: &KnownModel, with_prices: bool) -> String {
    let name = format!("{}/{}", row.vendor, row.model);
    if !with_prices {
        return format!("  {name}\n");
    }
    let batch = row
        .batch_percent
        .map_or_else(String::new, |part| format!("  batch {part} %"));
    let prices = [
        ("in", row.input_usd),
        ("out", row.output_usd),
        ("cache read", row.cache_read_usd),
        ("write", row.cache_write_usd),
    ];
    let prices = prices
        .map(|(what, usd)| format!("{what} {usd:>8.3}"))
        .join("  ");
    format!("  {name:<44} {prices}{batch}\n")
}
