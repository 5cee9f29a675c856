//! Tests of the settings that enable telemetry and choose its endpoint and headers.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::path::Path;

use windlass_host::config::SettingsLayer;

use super::*;
use crate::settings::KEYS;

/// Compares the address and headers for these settings and variables; `off` if telemetry is disabled, or the error.
#[track_caller]
fn check(settings: &str, variables: &[(&str, &str)], expect: &str) {
    let mut layers = windlass_host::config::Layers::new(KEYS);
    layers
        .add_text(SettingsLayer::User, Path::new("config.toml"), settings)
        .unwrap();
    let variable = |name: &str| {
        variables
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.to_string())
    };
    let found = match CollectorTarget::of(&layers, variable) {
        Ok(None) => "off".to_owned(),
        Err(why) => why,
        Ok(Some(target)) => {
            let headers = target
                .headers
                .iter()
                .map(|(name, value)| format!(" {name}: {}", value.to_str().unwrap()));
            format!(
                "{}{}",
                target.address(Signal::Traces),
                headers.collect::<String>()
            )
        }
    };
    assert_eq!(found, expect, "{settings} {variables:?}");
}

#[test]
fn only_settings_enable_telemetry() {
    let usual = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/base/");
    let token = (
        "OTEL_EXPORTER_OTLP_HEADERS",
        "authorization=Bearer%20t, x-b = 2",
    );
    check("", &[usual, token], "off");
    check("otel.content = true", &[usual], "off");
    check(
        "otel.enabled = false\notel.endpoint = \"http://a:1\"",
        &[],
        "off",
    );
    check(
        "otel.endpoint = \"http://a:1\"",
        &[usual, token],
        "http://a:1/v1/traces",
    );
    check(
        "otel.enabled = true",
        &[],
        "http://localhost:4318/v1/traces",
    );
    check(
        "otel.enabled = true",
        &[usual, token],
        "http://collector:4318/base/v1/traces authorization: Bearer t x-b: 2",
    );
}

#[test]
fn headers_are_read_from_variables_and_errors_contain_no_secret() {
    let on =
        |headers: &str| format!("otel.endpoint = \"https://a/x\"\notel.headers = [\"{headers}\"]");
    check(
        &on("Authorization=TOKEN"),
        &[("TOKEN", "s3cret")],
        "https://a/x/v1/traces authorization: s3cret",
    );
    check(
        &on("authorization=TOKEN"),
        &[],
        "`otel.headers`: the variable TOKEN is not set",
    );
    check(
        &on("authorization"),
        &[],
        "`otel.headers` must be a list of `header=VARIABLE`; the value is read from the variable",
    );
    check(
        &on("authorization=TOKEN"),
        &[("TOKEN", "a\nb")],
        "`otel.headers`: the value for authorization is not valid in a header",
    );
    let bad = "`otel.endpoint` is not an address like http://localhost:4318";
    for address in ["", "localhost:4318", "ftp://u:p@h/", "http://"] {
        check(&format!("otel.endpoint = \"{address}\""), &[], bad);
    }
}
