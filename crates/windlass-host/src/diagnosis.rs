//! Facts about this machine for a diagnosis: versions of programs, writable directories, kernel settings that affect
//! user namespaces, and whether a local server answers.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The timeout for connecting to a local server.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);

/// The first line that a program of `PATH` prints for `--version`, or the reason why it cannot be started.
pub fn program_version(program: &str) -> Result<String, String> {
    let output = Command::new(program).arg("--version").output();
    let output = output.map_err(|err| format!("cannot start {program}: {err}"))?;
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned())
}

/// Checks that the directory can be created or written: its nearest existing ancestor must be writable.
pub fn check_writable(dir: &Path) -> Result<(), String> {
    let existing = dir.ancestors().find(|dir| dir.exists()).unwrap_or(dir);
    rustix::fs::access(existing, rustix::fs::Access::WRITE_OK)
        .map_err(|err| format!("{} cannot be written: {err}", existing.display()))
}

/// Kernel settings and files that affect user namespaces. A setting that the kernel lacks is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamespaceSettings {
    /// `user.max_user_namespaces`
    pub max: Option<String>,
    /// `kernel.unprivileged_userns_clone` of older Debian kernels
    pub clone: Option<String>,
    /// A container engine marked the root of this process.
    pub in_container: bool,
}

impl NamespaceSettings {
    /// Reads the settings of this machine.
    #[must_use]
    pub fn read() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let markers = ["/.dockerenv", "/run/.containerenv"];
        Self {
            max: read("/proc/sys/user/max_user_namespaces"),
            clone: read("/proc/sys/kernel/unprivileged_userns_clone"),
            in_container: markers.iter().any(|file| Path::new(file).exists()),
        }
    }
}

/// Whether a server accepts a connection at the address of a URL.
pub async fn answers(url: &str) -> bool {
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
}
