//! The variables that name the directories of tools and their caches, and the default paths below a home.

use std::ffi::OsString;
use std::path::Path;

/// A variable that names a directory of a tool.
pub(super) struct ToolVariable {
    pub(super) name: &'static str,
    /// The default path below a home; empty if there is none.
    pub(super) below: &'static str,
    /// Commands write there; each session has a private overlay.
    pub(super) cache: bool,
}

const fn tool(name: &'static str, below: &'static str) -> ToolVariable {
    ToolVariable {
        name,
        below,
        cache: false,
    }
}

const fn cache(name: &'static str, below: &'static str) -> ToolVariable {
    ToolVariable {
        cache: true,
        ..tool(name, below)
    }
}

pub(super) const TOOL_VARIABLES: &[ToolVariable] = &[
    tool("RUSTUP_HOME", ".rustup"),
    tool("NVM_DIR", ".nvm"),
    tool("PYENV_ROOT", ".pyenv"),
    tool("VOLTA_HOME", ".volta"),
    tool("GOROOT", ""),
    tool("JAVA_HOME", ""),
    tool("VIRTUAL_ENV", ""),
    tool("CONDA_PREFIX", ""),
    tool("PNPM_HOME", ""),
    tool("DOTNET_ROOT", ""),
    cache("CARGO_HOME", ".cargo"),
    cache("GOMODCACHE", "go/pkg/mod"),
    cache("GOCACHE", ".cache/go-build"),
    cache("npm_config_cache", ".npm"),
    cache("PIP_CACHE_DIR", ".cache/pip"),
    cache("UV_CACHE_DIR", ".cache/uv"),
    cache("YARN_CACHE_FOLDER", ""),
    cache("GRADLE_USER_HOME", ".gradle"),
    cache("DENO_DIR", ".cache/deno"),
];

/// Adds variables for the tools at their default paths below a home, unless the variable is set already.
pub(super) fn add_usual_places<'a>(
    env: &mut Vec<(OsString, OsString)>,
    home: Option<&Path>,
    tools: impl IntoIterator<Item = &'a ToolVariable>,
) {
    for tool in tools {
        let place = home
            .filter(|_| !tool.below.is_empty())
            .map(|home| home.join(tool.below))
            .filter(|place| place.is_dir());
        if let Some(place) = place
            && !env.iter().any(|(known, _)| known == tool.name)
        {
            env.push((tool.name.into(), place.into()));
        }
    }
}
