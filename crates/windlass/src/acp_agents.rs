//! Reads the ACP registry that the settings name, and installs agents from it.

use std::path::{Path, PathBuf};

use windlass_registry::{AcpRegistry, InstalledAgents, acp_registry};

use crate::error::Error;
use crate::settings::Settings;
use crate::wire;

/// The registry in the file that the setting `acp_registry` names, else the copy that is part of the program.
///
/// ```
/// use windlass::agents::registry;
/// use windlass::settings::Settings;
///
/// let dir = tempfile::tempdir()?;
/// let registry = registry(&Settings::none(dir.path()))?;
/// assert!(registry.find("cline").is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn registry(settings: &Settings) -> Result<AcpRegistry, Error> {
    let Some(path) = settings.layers.text("acp_registry") else {
        return Ok(AcpRegistry::shipped()?);
    };
    let text = wire::read_text(Path::new(path), acp_registry::MAX_BYTES, "acp_registry")?;
    Ok(AcpRegistry::read(&text)?)
}

/// Installs the agent with this id and returns its version and the path of its program. `say` receives a line of progress
/// for each step.
///
/// ```
/// use windlass::agents::install_from_registry;
/// use windlass::settings::Settings;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let dir = tempfile::tempdir()?;
/// let settings = Settings::none(dir.path());
/// let installed = install_from_registry("no-such-agent", &settings, &|_| ()).await;
/// assert!(installed.is_err(), "the registry does not have it");
/// # Ok(())
/// # }
/// ```
pub async fn install_from_registry(
    id: &str,
    settings: &Settings,
    say: &dyn Fn(&str),
) -> Result<(String, PathBuf), Error> {
    let registry = registry(settings)?;
    let entry = registry.find(id)?;
    if let Some(built_in) = entry.built_in() {
        say(&format!(
            "Windlass knows this agent as `{0}` and supports it better under that name: `windlass runtimes install {0}`",
            built_in.name
        ));
    }
    let dir = settings.places.runtimes_dir();
    let http = wire::http(settings)?;
    let program = InstalledAgents { dir: &dir }
        .install_entry(entry, &http, say)
        .await?;
    Ok((entry.version.clone(), program))
}
