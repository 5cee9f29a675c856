//! Isolated runs on a large tree, beside the two usual ways to have a tree of one's own: `git worktree add` and
//! `cp -a`, in the same minutes and with everything in the system's cache. The tree is made once and goes with the lab.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::lab::{Lab, Wire};
use super::measure::{Sample, Spread};
use super::report::{Row, Target, Unit};
use super::rows::{ONE_EXCHANGE, cpu, floor_exchange, rss, wall};

/// Folders of the large tree, and small files in each.
const FOLDERS: usize = 1_000;
const FILES: usize = 100;
/// The file that is changed and landed.
const CHANGED: &str = "part-00/folder-0007/file-42.txt";
/// Many files that are changed and landed at once, and their number.
const MANY: (&str, usize) = ("part-0[01]/*/*.txt", 10_000);
/// What it ignores, as trees do.
const IGNORED: &str = "target/\n/dist/\nnode_modules/\n*.o\n*.log\n.env*\n!.env.example\n";
const WORKTREE: &str = "`git worktree add`";

/// Opening, walking and landing in a tree of 100,000 files, and whole runs.
pub(crate) fn rows(lab: &Lab) -> Result<Vec<Row>> {
    let tree = Tree::make(lab)?;
    let mut rows = tree.opening()?;
    rows.extend(tree.landing()?);
    rows.extend(tree.landing_of_many()?);
    rows.extend(tree.whole_runs()?);
    Ok(rows)
}

/// The large tree, with everything committed.
struct Tree<'a> {
    lab: &'a Lab,
    dir: PathBuf,
}

/// What a run of `isolated-speed` said in milliseconds, and what it took.
struct Opened {
    times: Vec<f64>,
    sample: Sample,
}

impl<'a> Tree<'a> {
    fn make(lab: &'a Lab) -> Result<Self> {
        let tree = Self {
            lab,
            dir: lab.dir().join("large"),
        };
        std::fs::create_dir(&tree.dir).context("the large tree cannot be made")?;
        let history = lab.dir().join("history");
        std::fs::write(&history, Self::history())
            .context("the large tree cannot be written down")?;
        // One pack and one checkout: a file for each object would take longer than all that is measured.
        lab.once(tree.git().args(["init", "-q", "-b", "main"]))?;
        let stream = std::fs::File::open(&history).context("the large tree cannot be read")?;
        let made = tree
            .git()
            .args(["fast-import", "--quiet"])
            .stdin(stream)
            .status();
        ensure!(
            made.context("git could not be started")?.success(),
            "git could not make the large tree"
        );
        lab.once(tree.git().args(["reset", "-q", "--hard"]))?;
        Ok(tree)
    }

    /// Its one commit, as `git fast-import` reads it.
    fn history() -> String {
        let mut text = String::from(
            "commit refs/heads/main\ncommitter bench <bench@localhost> 0 +0000\ndata 3\nall\n",
        );
        let mut add = |path: &str, bytes: &str| {
            text.push_str(&format!(
                "M 100644 inline {path}\ndata {}\n{bytes}\n",
                bytes.len()
            ));
        };
        add(".gitignore", IGNORED);
        for folder in 0..FOLDERS {
            let dir = format!("part-{:02}/folder-{folder:04}", folder / 50);
            for file in 0..FILES {
                add(
                    &format!("{dir}/file-{file:02}.txt"),
                    &format!("file {file} of folder {folder}\n"),
                );
            }
        }
        text
    }

    fn git(&self) -> Command {
        let mut command = Command::new("git");
        command.args([
            "-c",
            "user.name=bench",
            "-c",
            "user.email=bench@localhost",
            "-c",
            "gc.auto=0",
        ]);
        command
            .current_dir(&self.dir)
            .env("HOME", self.lab.dir().join("home"))
            .env("GIT_CONFIG_NOSYSTEM", "1");
        command
    }

    fn open(&self, land: Option<(&str, usize)>) -> Result<Opened> {
        let figures = self.lab.dir().join("figures");
        let mut command = self.lab.program("isolated-speed");
        command
            .arg("--helper")
            .arg(self.lab.binary("windlass"))
            .arg("--workspace")
            .arg(&self.dir);
        command
            .arg("--home")
            .arg(self.lab.dir().join("home"))
            .arg("--file")
            .arg(&figures);
        if let Some((pattern, files)) = land {
            command.args(["--land", pattern, "--files", &files.to_string()]);
        }
        let sample = self.lab.once(&mut command)?;
        let text = std::fs::read_to_string(figures).context("isolated-speed left no figures")?;
        let times: Vec<f64> = text
            .split(' ')
            .filter_map(|time| time.parse().ok())
            .collect();
        let expected = if land.is_some() { 4 } else { 2 };
        ensure!(times.len() == expected, "isolated-speed said `{text}`");
        Ok(Opened { times, sample })
    }

    /// A tree of one's own made by another program, and taken away again.
    fn other_way(&self, command: &mut Command, made: &Path) -> Result<Sample> {
        let sample = self.lab.once(command)?;
        std::fs::remove_dir_all(made).context("a copy of the large tree cannot be removed")?;
        self.lab.once(self.git().args(["worktree", "prune"]))?;
        Ok(sample)
    }

    fn opening(&self) -> Result<Vec<Row>> {
        // The first walk brings the tree's records into the cache.
        self.open(None)?;
        let made = self.lab.dir().join("made");
        let (mut ours, mut worktrees, mut copies) = (Vec::new(), Vec::new(), Vec::new());
        // Making and removing 100,000 files takes the better part of a minute: once when it has to be quick.
        for _ in 1..self.lab.times(3) {
            worktrees.push(
                self.other_way(
                    self.git()
                        .args(["worktree", "add", "-q", "--detach"])
                        .arg(&made),
                    &made,
                )?,
            );
            copies.push(
                self.other_way(Command::new("cp").arg("-a").args([&self.dir, &made]), &made)?,
            );
            for _ in 0..self.lab.times(10) {
                ours.push(self.open(None)?);
            }
        }
        let samples: Vec<Sample> = ours.iter().map(|opened| opened.sample).collect();
        let open = column(&ours, 0)?;
        let row = |what: &str, unit, ours| Row::new(&format!("{what}, 100,000 files"), unit, ours);
        Ok(vec![
            row(
                "opening an isolated run to the end of its first command",
                Unit::Ms,
                open,
            )
            .floor(WORKTREE, wall(&worktrees)?)
            .target(Target::Below(50.0)),
            row("the same beside a copy", Unit::Ms, open).floor("`cp -a`", wall(&copies)?),
            row("CPU for it, with the stat walk", Unit::Ms, cpu(&samples)?)
                .floor(WORKTREE, cpu(&worktrees)?)
                .target(Target::Below(300.0)),
            row("peak memory for it", Unit::Mb, rss(&samples)?).floor(WORKTREE, rss(&worktrees)?),
        ])
    }

    fn landing(&self) -> Result<Vec<Row>> {
        let (mut landed, mut statuses) = (Vec::new(), Vec::new());
        for _ in 0..self.lab.times(10) {
            let before = self.records()?;
            landed.push(self.open(Some((CHANGED, 1)))?);
            let after = self.records()?;
            let written = after
                .iter()
                .filter(|(path, record)| before.get(*path) != Some(record));
            let written: Vec<&Path> = written.map(|(path, _)| path.as_path()).collect();
            ensure!(
                written == [Path::new(CHANGED)] && after.len() == before.len(),
                "landing one file wrote {written:?}"
            );
            statuses.push(self.lab.once(self.git().args(["status", "--porcelain"]))?);
        }
        Ok(vec![
            Row::new(
                "looking whether anybody changed one of 100,000 files",
                Unit::Ms,
                column(&landed, 2)?,
            )
            .floor("`git status`", wall(&statuses)?),
            Row::new(
                "landing one changed file of them, the only one written",
                Unit::Ms,
                column(&landed, 3)?,
            ),
        ])
    }

    /// Compared with a program that copies the same files aside, renames each over the old one, and syncs once.
    fn landing_of_many(&self) -> Result<Vec<Row>> {
        let (mut landed, mut floor) = (Vec::new(), Vec::new());
        for _ in 0..self.lab.times(3) {
            landed.push(self.open(Some(MANY))?);
            let mut command = self.lab.program("floor-landing");
            command
                .arg("--dir")
                .arg(&self.dir)
                .args(["--files", "10000"]);
            floor.push(self.lab.once(&mut command)?);
            self.lab.once(self.git().args(["checkout", "-q", "."]))?;
        }
        let copied = "copy, rename, one sync";
        let samples: Vec<Sample> = landed.iter().map(|opened| opened.sample).collect();
        Ok(vec![
            Row::new(
                "landing 10,000 changed files",
                Unit::Ms,
                column(&landed, 3)?,
            )
            .floor(copied, wall(&floor)?),
            Row::new("CPU for it, with the command", Unit::Ms, cpu(&samples)?)
                .floor(copied, cpu(&floor)?),
            Row::new("peak memory for it", Unit::Mb, rss(&samples)?).floor(copied, rss(&floor)?),
        ])
    }

    /// Inode and change time of every file.
    fn records(&self) -> Result<BTreeMap<PathBuf, (u64, i64, i64)>> {
        let (mut records, mut open) = (BTreeMap::new(), vec![self.dir.clone()]);
        while let Some(dir) = open.pop() {
            for entry in std::fs::read_dir(&dir).context("the large tree cannot be read")? {
                let entry = entry.context("the large tree cannot be read")?;
                let about = entry.metadata().context("the large tree cannot be read")?;
                if about.is_file() {
                    let path = entry
                        .path()
                        .strip_prefix(&self.dir)
                        .unwrap_or(&dir)
                        .to_owned();
                    records.insert(path, (about.ino(), about.ctime(), about.ctime_nsec()));
                } else if entry.file_name() != ".git" {
                    open.push(entry.path());
                }
            }
        }
        Ok(records)
    }

    /// Whole runs without tools on a copy: of a small tree, and of the large one.
    fn whole_runs(&self) -> Result<Vec<Row>> {
        let lab = self.lab;
        let small = lab.dir().join("small");
        std::fs::create_dir(&small).context("the small tree cannot be made")?;
        for file in 0..10 {
            std::fs::write(small.join(format!("file-{file}.txt")), "text\n")
                .context("the small tree cannot be made")?;
        }
        let server = lab.serve(&["--answer", "Nothing has to be done."])?;
        let run = |dir: &Path| {
            let mut command = lab.isolated(&server, Wire::Messages);
            command.current_dir(dir);
            command
        };
        let mut seen = 0;
        lab.once(&mut run(&small))?;
        let bytes = server.arrivals(&mut seen, 1)?[0].bytes.to_string();
        let measured = |dir: &Path, times: usize| -> Result<(Spread, Spread)> {
            let (ours, floor) = lab.alternate(
                lab.times(times),
                || run(dir),
                || floor_exchange(lab, &server, &bytes),
            )?;
            Ok((wall(&ours)?, wall(&floor)?))
        };
        let (ours, floor) = measured(&small, 100)?;
        let of_small = Row::new("isolated run without tools, small tree", Unit::Ms, ours)
            .floor(ONE_EXCHANGE, floor);
        let (ours, floor) = measured(&self.dir, 20)?;
        let of_large =
            Row::new("the same, 100,000 files", Unit::Ms, ours).floor(ONE_EXCHANGE, floor);
        Ok(vec![of_small.target(Target::Over(10.0)), of_large])
    }
}

fn column(opened: &[Opened], at: usize) -> Result<Spread> {
    Spread::of(
        opened
            .iter()
            .filter_map(|opened| opened.times.get(at).copied())
            .collect(),
    )
}
