//! Files that control tools (spec 5.1): settings and instructions of agents, and files that programs on the user's
//! machine execute later. The floor, the landing and the sandbox share this table.

use super::NameTable;
use super::secrets::trimmed;

/// The kind of tool that a file controls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steers {
    /// Settings of agents, such as permissions.
    Agents,
    /// Instructions to agents, in prose.
    Instructions,
    /// Files that programs on the user's machine execute or obey: editors, hooks, package managers, CI pipelines.
    Machine,
}

/// The kind of tool that the file at a path controls, if any. Names match at any depth and in any case. A directory in
/// the table includes everything below it.
#[must_use]
pub fn steers(path: &str) -> Option<Steers> {
    let parts: Vec<String> = path
        .split('/')
        .map(|part| trimmed(part).to_lowercase())
        .collect();
    let matches = |name: &str| {
        let name: Vec<String> = name.split('/').map(str::to_lowercase).collect();
        parts.windows(name.len()).any(|window| window == name)
    };
    TABLES
        .iter()
        .find_map(|(table, steers)| table.iter().any(matches).then_some(*steers))
}

/// Every name in the table.
pub fn steering_names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().flat_map(|(table, _)| table.iter())
}

const TABLES: [(NameTable, Steers); 3] = [
    (AGENTS, Steers::Agents),
    (INSTRUCTIONS, Steers::Instructions),
    (MACHINE, Steers::Machine),
];

const AGENTS: NameTable = NameTable(
    ".windlass .agent .agents .claude .codex .cursor .gemini .qwen .opencode .openhands .windsurf .clinerules \
     opencode.json opencode.jsonc .mcp.json .aider.conf.yml",
);
const INSTRUCTIONS: NameTable = NameTable(
    "AGENTS.md AGENTS.override.md CLAUDE.md CLAUDE.local.md GEMINI.md QWEN.md .goosehints .cursorrules .windsurfrules \
     .github/copilot-instructions.md .github/instructions copilot-instructions.md",
);
const MACHINE: NameTable = NameTable(
    ".vscode .idea .zed .devcontainer .exrc .nvimrc .nvim.lua .dir-locals.el .dir-locals-2.el .envrc .mise.toml \
     mise.toml .npmrc .cargo/config .cargo/config.toml .husky .githooks .gitmodules .gitattributes lefthook.yml lefthook.yaml \
     .lefthook.yml .lefthook.yaml lefthook-local.yml lefthook-local.yaml .lefthook-local.yml .lefthook-local.yaml \
     .pre-commit-config.yaml .pre-commit-config.yml .github/workflows .github/actions .gitea/workflows \
     .forgejo/workflows .gitlab-ci.yml .circleci .buildkite .travis.yml .drone.yml .woodpecker .woodpecker.yml \
     bitbucket-pipelines.yml azure-pipelines.yml Jenkinsfile .appveyor.yml appveyor.yml",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(paths: &str, expect: Option<Steers>) {
        for path in paths.split_ascii_whitespace() {
            assert_eq!(steers(path), expect, "{path}");
        }
    }

    #[test]
    fn files_that_control_tools_match_at_any_depth_and_in_any_case() {
        check(
            ".qwen/settings.json .opencode/a opencode.json .openhands/x .windsurf/rules .aider.conf.yml .clinerules/a \
             .mcp.json deep/.Claude/settings.json .codex/config.toml",
            Some(Steers::Agents),
        );
        check(
            "AGENTS.md sub/claude.md GEMINI.md QWEN.md .windsurfrules .goosehints .cursorrules \
             .github/copilot-instructions.md",
            Some(Steers::Instructions),
        );
        check(
            ".vscode/tasks.json .zed/tasks.json .exrc .dir-locals.el .mise.toml .npmrc .cargo/config.toml \
             .github/workflows/ci.yml .github/actions/a/action.yml .travis.yml bitbucket-pipelines.yml .drone.yml \
             lefthook-local.yml .envrc sub/.husky/pre-commit jenkinsfile .gitlab-ci.yml .circleci/config.yml",
            Some(Steers::Machine),
        );
        check(
            "src/main.rs .github/ISSUE_TEMPLATE.md .cargo/audit.toml agents.mdx docs/agents/readme.md actions/x npmrc \
             package.json",
            None,
        );
    }
}
