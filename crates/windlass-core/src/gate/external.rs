//! Commands with effects outside the workspace: they publish something, install something on the machine that runs
//! later, or have an option that runs another program. The tables are by program; other commands are judged elsewhere.

use super::NameTable;
use crate::shell::{Simple, Word};

/// Subcommands that publish, by program. An empty table means that every use of the program does.
const PUBLISHING: &[(&str, NameTable)] = &[
    ("git", NameTable("push send-email")),
    (
        "npm pnpm yarn bun",
        NameTable("publish unpublish deprecate dist-tag owner access"),
    ),
    ("cargo", NameTable("publish yank owner")),
    (
        "gh glab",
        NameTable("release pr mr issue repo api gist workflow secret variable label"),
    ),
    ("docker podman buildah nerdctl", NameTable("push login")),
    ("skopeo crane", NameTable("copy push")),
    ("twine", NameTable("upload")),
    ("uv poetry hatch flit pdm", NameTable("publish")),
    ("gem", NameTable("push yank owner")),
    (
        "mvn gradle gradlew mvnw",
        NameTable("deploy publish release:perform release:prepare uploadArchives"),
    ),
    ("dotnet nuget", NameTable("push delete")),
    ("helm", NameTable("push install upgrade uninstall rollback")),
    (
        "kubectl oc",
        NameTable(
            "apply delete create patch replace scale rollout edit set annotate label drain cordon exec cp",
        ),
    ),
    (
        "terraform tofu pulumi cdk",
        NameTable("apply destroy import up deploy refresh"),
    ),
    (
        "vercel netlify fly flyctl heroku firebase wrangler serverless sls amplify eb",
        NameTable("deploy publish up push rollback delete destroy remove"),
    ),
    ("aws gcloud az doctl", NameTable("")),
    ("ssh scp sftp", NameTable("")),
];
/// Subcommands and options of these programs that only read.
const LOOKS: NameTable = NameTable(
    "list ls describe get show view status diff help version info whoami --version --help -h -V --list -l",
);

const DATABASES: NameTable = NameTable(
    "psql mysql mariadb mongosh mongo redis-cli sqlcmd cqlsh clickhouse-client pg_restore",
);
/// First words of statements that only read from a database. `WRITES` has the words that make a statement write all the
/// same.
const QUERIES: NameTable = NameTable(
    "select show explain describe desc ping get mget info keys scan ttl type exists dbsize hgetall lrange llen \\d \\dt \\l",
);
const WRITES: NameTable = NameTable(
    "insert update delete drop alter create truncate grant revoke copy merge replace call do into set del flushall",
);

/// Whether a database client may write: it gets no statement, one from a file or stdin, or one that writes.
fn writes_to_database(simple: &Simple) -> bool {
    let words = simple.args().iter().map(|word| word.text.to_lowercase());
    let statements: Vec<Vec<String>> = words
        .filter(|word| !word.starts_with('-'))
        .map(|word| {
            let parts = word.split(|c: char| c.is_whitespace() || ";(),".contains(c));
            parts
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect()
        })
        .collect();
    let looks = |words: &Vec<String>| words.first().is_some_and(|first| QUERIES.contains(first));
    let writes = |words: &Vec<String>| words.iter().any(|word| WRITES.contains(word));
    !statements.iter().any(looks) || statements.iter().any(writes)
}

/// Whether a command publishes something: a push, a release, a deployment, a statement to a database.
pub(super) fn publishes(simple: &Simple) -> bool {
    if DATABASES.contains(simple.name()) {
        let tells = |word: &Word| NameTable("--version --help --list -l -V").contains(&word.text);
        return !simple.args().iter().any(tells) && writes_to_database(simple);
    }
    let Some((_, words)) = PUBLISHING
        .iter()
        .find(|(programs, _)| programs.split(' ').any(|name| name == simple.name()))
    else {
        return false;
    };
    let named: Vec<&str> = tasks(simple).take(3).collect();
    let looks = || {
        named.iter().any(|word| LOOKS.contains(word))
            || simple.args().iter().any(|word| LOOKS.contains(&word.text))
    };
    if words.iter().next().is_none() {
        return !looks();
    }
    let forge = matches!(simple.name(), "gh" | "glab");
    match named[..] {
        ["image" | "manifest" | "nuget", "push", ..] => true,
        [first, ..] => words.contains(first) && !(forge && looks()),
        [] => false,
    }
}

/// The arguments of a command that are neither options nor values of git's options.
fn tasks(simple: &Simple) -> impl Iterator<Item = &str> {
    let args = simple.args();
    args.iter().enumerate().filter_map(move |(at, word)| {
        let value =
            at > 0 && simple.name() == "git" && matches!(args[at - 1].text.as_str(), "-C" | "-c");
        (!word.text.starts_with('-') && !value).then_some(word.text.as_str())
    })
}

/// Whether a command installs something outside the workspace that takes effect later: scheduled jobs, services, or git
/// settings for all repositories.
pub(super) fn persists(simple: &Simple) -> bool {
    let has = |words: &'static str| {
        let mut args = simple.args().iter();
        args.any(|word| NameTable(words).contains(&word.text))
    };
    match simple.name() {
        "crontab" => !has("-l --help -V"),
        "at" | "batch" => !has("-l -V --help"),
        "systemctl" | "launchctl" => has(
            "enable disable start restart reload link mask unmask edit set-property load bootstrap daemon-reload",
        ),
        "git" => {
            let sets = tasks(simple).count() > 2
                || has("--unset --unset-all --add --replace-all --edit -e --remove-section");
            let reads = has("--get --get-all --get-regexp --get-urlmatch --list -l get list");
            tasks(simple).next() == Some("config") && has("--global --system") && sets && !reads
        }
        _ => false,
    }
}

/// Options with which a program runs another one, or reads settings that do.
const RUNS_BY_OPTION: &[(&str, NameTable)] = &[
    ("cargo", NameTable("--config -Z")),
    (
        "npm pnpm yarn",
        NameTable("--script-shell --node-options --prefix --userconfig --globalconfig"),
    ),
    ("make gmake", NameTable("--eval -f --file --makefile")),
    ("go", NameTable("-exec -toolexec -overlay")),
    (
        "gradle gradlew",
        NameTable("-I --init-script -b --build-file"),
    ),
    ("mvn mvnw", NameTable("-f --file -s --settings")),
    ("pytest", NameTable("-p -c --rootdir --confcutdir")),
    ("just", NameTable("-f --justfile --shell")),
    (
        "git",
        NameTable(
            "-c --exec-path --upload-pack --receive-pack --ext-diff --textconv -O --open-files-in-pager",
        ),
    ),
    ("dotnet", NameTable("--settings --configfile")),
];

/// Whether a command has an option that makes its program run another one. A rule with a wildcard does not cover such a
/// command.
pub(super) fn runs_by_option(simple: &Simple) -> bool {
    let options = RUNS_BY_OPTION
        .iter()
        .find(|(programs, _)| programs.split(' ').any(|name| name == simple.name()));
    let assigns = |word: &Word| {
        simple.name() == "make"
            && ["SHELL=", "MAKEFLAGS=", ".SHELLFLAGS="]
                .iter()
                .any(|set| word.text.starts_with(set))
    };
    let is_option = |word: &Word, option: &str| {
        word.text == option
            || word.text.strip_prefix(option).is_some_and(|rest| {
                rest.starts_with('=') || (option.len() == 2 && !word.text.starts_with("--"))
            })
    };
    simple.args().iter().any(|word| {
        assigns(word)
            || options
                .is_some_and(|(_, options)| options.iter().any(|option| is_option(word, option)))
    })
}
