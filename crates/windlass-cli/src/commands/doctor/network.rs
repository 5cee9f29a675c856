//! Describes the proxies and certificates of requests, and checks whether local servers answer.

use std::time::Duration;

use windlass::model::{Http, HttpOptions};

use windlass::settings::Settings;
use windlass::wire;

/// The timeout for connecting to a local server.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);

/// Describes the proxies, their exceptions and the certificates of requests.
pub(super) fn path(settings: &Settings) -> Result<String, String> {
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

/// Whether a server accepts a connection at the address of a URL.
pub(super) async fn answers(url: &str) -> bool {
    let Some((host, port)) = host_and_port(url) else {
        return false;
    };
    let connect = tokio::net::TcpStream::connect((host, port));
    matches!(
        tokio::time::timeout(CONNECT_TIMEOUT, connect).await,
        Ok(Ok(_))
    )
}

fn host_and_port(url: &str) -> Option<(&str, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let default_port = if scheme.eq_ignore_ascii_case("https") {
        443
    } else {
        80
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let address = authority.rsplit('@').next()?;
    let (host, port) = match address.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, port.strip_prefix(':'))
        }
        None => match address.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        },
    };
    let port = port.map_or(Ok(default_port), str::parse).ok()?;
    (!host.is_empty()).then_some((host, port))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_url_is_found() {
        for (url, expected) in [
            ("http://127.0.0.1:11434", Some(("127.0.0.1", 11434))),
            ("http://127.0.0.1:1234/v1", Some(("127.0.0.1", 1234))),
            ("https://host.example/v1", Some(("host.example", 443))),
            ("http://name:word@host:81?x", Some(("host", 81))),
            ("http://[::1]:8000/v1", Some(("::1", 8000))),
            ("http://[::1]", Some(("::1", 80))),
            ("http://host:port", None),
            ("127.0.0.1:80", None),
            ("http://", None),
        ] {
            assert_eq!(host_and_port(url), expected, "{url}");
        }
    }

    #[tokio::test]
    async fn a_server_answers_only_while_it_listens() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        assert!(answers(&url).await);
        drop(listener);
        assert!(!answers(&url).await);
        assert!(!answers("no address").await);
    }

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
