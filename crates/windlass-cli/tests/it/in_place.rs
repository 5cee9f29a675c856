//! In-place runs: landings of commands, calls that fail, and undo after a killed run.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli_fixture::CliFixture;
use windlass_needs::{Need, lacks};

const DONE: &str = "[[step]]\ntext = \"done\"\n";

fn bash(line: &str) -> String {
    format!(
        "[[step]]\ncalls = [{{ name = \"bash\", args = {{ command = {} }} }}]\n",
        json!(line)
    )
}

fn of_kind<'a>(log: &'a [Value], kind: &str) -> Vec<&'a Value> {
    log.iter()
        .filter(|event| event["kind"] == kind)
        .map(|event| &event["data"])
        .collect()
}

/// Reads every file below a directory.
fn tree(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let (mut found, mut open) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(at).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().display().to_string();
                found.insert(name, std::fs::read(path).unwrap());
            }
        }
    }
    found
}

#[test]
fn a_command_that_may_not_land_fails_and_names_the_kept_files() {
    if lacks(Need::CommandLayers) {
        return;
    }
    let fixture = CliFixture::new();
    fixture.write("a.txt", "a\n");
    // The command line names no protected file; the landing detects it.
    fixture.write(
        "make.sh",
        "echo b > a.txt; mkdir -p sub/.vscode; echo '{}' > sub/.vscode/tasks.json; echo ran\n",
    );
    let line = "sh make.sh";
    let script = bash(line) + &bash("cat a.txt") + DONE;
    let output = fixture.play(&script, &["--yes", "--approval", "auto"]);
    assert_eq!(output.code, 0, "{}", output.err);
    assert_eq!(fixture.read("a.txt"), "a\n");
    let log = fixture.log();
    assert_eq!(of_kind(&log, "file_changed"), [&Value::Null; 0]);
    let results = of_kind(&log, "call_finished");
    let text = results[0]["result"]["text"].as_str().unwrap();
    assert!(
        results[0]["result"]["error"].is_string()
            && text.contains("none of the command's changes landed")
            && text.contains("sub/.vscode: it is protected")
            && text.contains("ran"),
        "{text}"
    );
    let kept = text.split("kept in ").nth(1).unwrap();
    let kept = kept.lines().next().unwrap();
    let kept = std::fs::read_to_string(Path::new(kept).join("a.txt"));
    assert_eq!(kept.unwrap(), "b\n");
    // The next call sees the real tree.
    assert_eq!(results[1]["result"]["text"], "a\n");
}

#[test]
fn changes_of_commands_are_counted_and_those_of_others_are_not_listed() {
    if lacks(Need::CommandLayers) {
        return;
    }
    let fixture = CliFixture::new();
    fixture.write("a.txt", "1\n2\n3\n");
    fixture.write("b.txt", "b\n");
    let output = fixture.play(
        &(bash("sed -i s/2/two/ a.txt") + DONE),
        &["--yes", "--approval", "auto", "-o", "json"],
    );
    assert_eq!(output.code, 0, "{}", output.err);
    let log = fixture.log();
    let changed = of_kind(&log, "file_changed");
    assert_eq!(
        (
            &changed[0]["path"],
            &changed[0]["added"],
            &changed[0]["removed"]
        ),
        (&json!("a.txt"), &json!(1), &json!(1))
    );
    let finished = of_kind(&log, "run_finished");
    let files = finished[0]["files"].as_array().unwrap();
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(
        (&files[0]["added"], &files[0]["removed"]),
        (&json!(1), &json!(1))
    );
}

#[test]
fn the_writes_of_a_background_job_are_logged_under_its_call_and_undone() {
    if lacks(Need::CommandLayers) {
        return;
    }
    let fixture = CliFixture::new();
    fixture.write("a.txt", "a\n");
    fixture.write(
        "job.sh",
        "echo b >> a.txt; echo new > n.txt; touch ${TMPDIR:-/tmp}/ready; sleep 60\n",
    );
    let before = tree(&fixture.work());
    let background = "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"sh job.sh\", background = true } }]\n";
    let wait = bash("until test -e ${TMPDIR:-/tmp}/ready; do sleep 0.02; done");
    let script = format!("{background}{wait}{}{DONE}", bash("cat a.txt"));
    let output = fixture.play(&script, &["--yes", "--approval", "auto"]);
    assert_eq!(output.code, 0, "{}", output.err);
    let log = fixture.log();
    let job_call = &of_kind(&log, "call_started")[0]["call"]["id"];
    let changed = of_kind(&log, "file_changed");
    let mut paths: Vec<&str> = changed
        .iter()
        .map(|change| change["path"].as_str().unwrap())
        .collect();
    paths.sort_unstable();
    assert_eq!(paths, ["a.txt", "n.txt"]);
    assert!(changed.iter().all(|change| change["call"] == *job_call));
    let results = of_kind(&log, "call_finished");
    assert_eq!(results.last().unwrap()["result"]["text"], "a\nb\n");
    assert_eq!(fixture.run(&["undo"]).code, 0);
    assert_eq!(tree(&fixture.work()), before);
}

/// Kills the process during the landing of a command that deletes many files. Undo must restore every file.
#[test]
fn a_run_killed_during_landing_can_be_undone() {
    if lacks(Need::CommandLayers) {
        return;
    }
    let (mut landed, mut untouched) = (0, 0);
    for round in 0..12_u64 {
        let fixture = CliFixture::new();
        for nth in 0..150 {
            fixture.write(&format!("docs/{nth}.md"), &format!("page {nth}\n"));
        }
        fixture.write("keep.txt", "keep\n");
        let before = tree(&fixture.work());
        let script = fixture.script(&(bash("rm -r docs") + DONE));
        let args = [
            "run",
            "--in-place",
            "--yes",
            "--approval",
            "auto",
            "--script",
        ];
        let mut command = fixture.command(&args);
        command.args([script.as_str(), "go"]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        wait_for_staging(&fixture.work(), &mut child);
        std::thread::sleep(Duration::from_millis(round * 4));
        child.kill().unwrap();
        child.wait().unwrap();
        let mended = fixture.run(&["status"]);
        assert_eq!(mended.code, 0, "{}", mended.err);
        if tree(&fixture.work()) == before {
            untouched += 1;
        } else {
            landed += 1;
            assert_eq!(
                tree(&fixture.work()).len(),
                1,
                "round {round}: half of it is there: {}",
                mended.err
            );
            let undone = fixture.run(&["undo"]);
            assert_eq!(
                undone.code, 0,
                "round {round}: {} {}",
                mended.err, undone.err
            );
            assert_eq!(tree(&fixture.work()), before, "round {round}");
        }
        // Events that are in the log are not appended again.
        let events = fixture.log().len();
        fixture.run(&["status"]);
        assert_eq!(fixture.log().len(), events, "round {round}");
    }
    assert!(
        landed + untouched == 12 && landed > 0,
        "{landed} landed, {untouched} did not"
    );
}

/// Waits until the workspace has a staging directory, or the run has ended.
fn wait_for_staging(work: &Path, child: &mut std::process::Child) {
    let began = Instant::now();
    let is_staging = |name: &str| name.starts_with(".windlass-landing-");
    while began.elapsed() < Duration::from_secs(20) {
        let mut names = std::fs::read_dir(work).unwrap().flatten();
        let staged = names.any(|one| is_staging(&one.file_name().to_string_lossy()));
        if staged || child.try_wait().unwrap().is_some() {
            return;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    panic!("nothing landed");
}

#[test]
fn a_build_stays_incremental() {
    let fixture = CliFixture::new();
    fixture.write(".gitignore", "out/\n");
    fixture.write("main.c", "int main(void) { return 0; }\n");
    fixture.write(
        "Makefile",
        "out/main: main.c\n\tmkdir -p out && cp main.c out/main && echo built\n",
    );
    let script = bash("make") + &bash("make") + &bash("touch -d 2001-02-03 unrelated; make") + DONE;
    let output = fixture.play(&script, &["--yes", "--approval", "auto"]);
    assert_eq!(output.code, 0, "{}", output.err);
    let log = fixture.log();
    let said: Vec<&str> = of_kind(&log, "call_finished")
        .iter()
        .map(|call| call["result"]["text"].as_str().unwrap())
        .collect();
    assert!(said[0].contains("built"), "{said:?}");
    assert!(
        !said[1].contains("built") && !said[2].contains("built"),
        "{said:?}"
    );
    let about = std::fs::metadata(fixture.work().join("unrelated")).unwrap();
    assert!(about.mtime() < 1_000_000_000);
}
