//! The tasks, read from the tables in `xtask/everyday`. A field that is not known is an error.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use toml::{Table, Value};

const TABLES: &[(&str, &str)] = &[
    ("shell", include_str!("../../everyday/shell.toml")),
    ("git", include_str!("../../everyday/git.toml")),
    ("c", include_str!("../../everyday/c.toml")),
    ("python", include_str!("../../everyday/python.toml")),
    ("node", include_str!("../../everyday/node.toml")),
    ("rust", include_str!("../../everyday/rust.toml")),
    ("languages", include_str!("../../everyday/languages.toml")),
];

/// One task.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Task {
    /// The table and the name in it.
    pub(super) name: String,
    /// Programs that must be on PATH.
    pub(super) needs: Vec<String>,
    /// It looks up its own number in `/proc`. Where parts of `/proc` are masked, the first tier has the container's, in
    /// which a command has another number.
    pub(super) own_proc: bool,
    /// The workspace before, by path.
    pub(super) files: BTreeMap<String, String>,
    /// The workspace is a git repository whose only commit has all the files.
    pub(super) git: bool,
    /// A line for bash that prepares the workspace without windlass.
    pub(super) before: Option<String>,
    /// The line that the model runs.
    pub(super) command: String,
    /// The exit code that is expected.
    pub(super) code: i64,
    /// A text that the output must have.
    pub(super) output: Option<String>,
    /// Files that the workspace must have afterwards, with a text in each.
    pub(super) after: BTreeMap<String, String>,
    /// Files that the workspace must not have afterwards.
    pub(super) gone: Vec<String>,
    /// The run is given `--net loopback`.
    pub(super) loopback: bool,
    /// In place a person must be asked, because the command can lose work; then nothing of it runs here.
    pub(super) asks_in_place: bool,
    pub(super) sample: bool,
}

/// Every task of every table.
pub(super) fn all() -> Result<Vec<Task>> {
    let mut tasks = Vec::new();
    for (group, text) in TABLES {
        tasks.extend(parse(group, text).with_context(|| format!("xtask/everyday/{group}.toml"))?);
    }
    Ok(tasks)
}

/// Fields before the first task are defaults for each task of the table.
fn parse(group: &str, text: &str) -> Result<Vec<Task>> {
    let mut table: Table = text.parse().context("it is not TOML")?;
    let tasks = match table.remove("task") {
        Some(Value::Array(tasks)) => tasks,
        _ => bail!("it has no `[[task]]`"),
    };
    let with_defaults = |task: Value| -> Result<Task> {
        let Value::Table(own) = task else {
            bail!("a task is not a table")
        };
        let mut fields = table.clone();
        fields.extend(own);
        let name = fields
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or("a task without a name")
            .to_owned();
        task_of(group, fields).with_context(|| name)
    };
    tasks.into_iter().map(with_defaults).collect()
}

fn task_of(group: &str, fields: Table) -> Result<Task> {
    let mut task = Task::default();
    for (key, value) in fields {
        match key.as_str() {
            "name" => task.name = format!("{group}: {}", text(&value)?),
            "command" => task.command = text(&value)?,
            "before" => task.before = Some(text(&value)?),
            "output" => task.output = Some(text(&value)?),
            "needs" => task.needs = texts(&value)?,
            "gone" => task.gone = texts(&value)?,
            "files" => task.files = pairs(&value)?,
            "after" => task.after = pairs(&value)?,
            "code" => task.code = value.as_integer().context("`code` is not a number")?,
            "git" => task.git = flag(&value)?,
            "own_proc" => task.own_proc = flag(&value)?,
            "loopback" => task.loopback = flag(&value)?,
            "asks_in_place" => task.asks_in_place = flag(&value)?,
            "sample" => task.sample = flag(&value)?,
            other => bail!("there is no field `{other}`"),
        }
    }
    ensure!(
        !task.name.is_empty() && !task.command.is_empty(),
        "a task needs `name` and `command`"
    );
    let checks = task.output.is_some() || !task.after.is_empty() || !task.gone.is_empty();
    ensure!(checks, "a task needs `output`, `after` or `gone`");
    Ok(task)
}

fn text(value: &Value) -> Result<String> {
    Ok(value.as_str().context("it is not a text")?.to_owned())
}

fn flag(value: &Value) -> Result<bool> {
    value.as_bool().context("it is neither true nor false")
}

fn texts(value: &Value) -> Result<Vec<String>> {
    value
        .as_array()
        .context("it is not a list")?
        .iter()
        .map(text)
        .collect()
}

fn pairs(value: &Value) -> Result<BTreeMap<String, String>> {
    let table = value.as_table().context("it is not a table")?;
    table
        .iter()
        .map(|(path, content)| Ok((path.clone(), text(content)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Issue 16 asks for 80; the sample has to stay small.
    #[test]
    fn there_are_enough_tasks_with_names_of_their_own() {
        let tasks = all().unwrap();
        let names: std::collections::BTreeSet<_> =
            tasks.iter().map(|task| task.name.as_str()).collect();
        assert!(
            tasks.len() >= 80 && names.len() == tasks.len(),
            "{} tasks, {} names",
            tasks.len(),
            names.len()
        );
        let sample = tasks.iter().filter(|task| task.sample).count();
        assert!((12..=20).contains(&sample), "{sample} tasks in the sample");
    }

    #[track_caller]
    fn check_refused(text: &str, expect: &str) {
        let err = parse("x", text).unwrap_err();
        assert!(format!("{err:#}").contains(expect), "{err:#}");
    }

    #[test]
    fn a_table_is_checked() {
        check_refused("a = 1\n", "no `[[task]]`");
        check_refused(
            "[[task]]\nname = \"n\"\ncommand = \"true\"\n",
            "needs `output`",
        );
        check_refused(
            "[[task]]\nname = \"n\"\noutptu = \"true\"\n",
            "there is no field `outptu`",
        );
        check_refused("[[task]]\nname = \"n\"\ncode = \"1\"\n", "is not a number");
        let text =
            "needs = [\"git\"]\n[[task]]\nname = \"n\"\ncommand = \"true\"\noutput = \"x\"\n";
        let tasks = parse("x", text).unwrap();
        assert_eq!(
            (tasks[0].name.as_str(), tasks[0].needs.as_slice()),
            ("x: n", ["git".to_owned()].as_slice())
        );
    }
}
