//! Describes the proxies and certificates of requests.

use windlass_providers::{Http, HttpOptions};

use crate::settings::Settings;
use crate::wire;

/// Describes the proxies, their exceptions and the certificates of requests.
pub(super) fn describe_path(settings: &Settings) -> Result<String, String> {
    let options = wire::http_options(settings).map_err(|error| error.message().to_owned())?;
    // Fails if a certificate file or the address of a proxy is invalid.
    Http::new(&options).map_err(|err| err.to_string())?;
    Ok(in_words(&options, settings.layers.text("ca_file")))
}

fn in_words(options: &HttpOptions, ca_file: Option<&str>) -> String {
    // The address of a proxy may contain a password.
    let address = |proxy: &String| proxy.rsplit('@').next().unwrap_or_default().to_owned();
    let mut parts = match (&options.https_proxy, &options.http_proxy) {
        (None, None) => vec!["direct".to_owned()],
        (https, http) => {
            let named = [("https", https), ("http", http)];
            let named = named
                .into_iter()
                .filter_map(|(scheme, proxy)| Some((scheme, proxy.as_ref().map(address)?)));
            named
                .map(|(scheme, proxy)| format!("{scheme} through the proxy {proxy}"))
                .collect()
        }
    };
    if let Some(exceptions) = options.no_proxy.as_ref().filter(|_| parts != ["direct"]) {
        parts.push(format!("except for {exceptions}"));
    }
    parts.push(match ca_file {
        Some(file) => format!("system root certificates and those of {file}"),
        None => "system root certificates".to_owned(),
    });
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_names_proxies_exceptions_and_certificates() {
        let mut options = HttpOptions::default();
        assert_eq!(in_words(&options, None), "direct; system root certificates");
        options.no_proxy = Some("internal.example".to_owned());
        assert_eq!(in_words(&options, None), "direct; system root certificates");
        options.http_proxy = Some("http://me:secret@proxy:3128".to_owned());
        let expected = "http through the proxy proxy:3128; except for internal.example; \
                        system root certificates and those of own.pem";
        assert_eq!(in_words(&options, Some("own.pem")), expected);
    }
}
