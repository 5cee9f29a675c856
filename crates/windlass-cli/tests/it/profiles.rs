//! Profiles are enforced when calls run, whatever else is allowed; a plan is kept and carried out.

use crate::place::Place;

const TRIES: &str = r##"
[[step]]
calls = [
  { name = "write_file", args = { path = "new.txt", content = "x" } },
  { name = "bash", args = { command = "touch made.txt; echo tried" } },
]
[[step]]
text = "# The plan\n\n1. write new.txt"
"##;

fn run(place: &Place, script: &str, more: &[&str]) -> crate::place::Output {
    let script = place.script(script);
    place.run(&[&["run", "--script", script.as_str(), "go"], more].concat())
}

#[test]
fn profiles_that_only_look_change_nothing_even_where_everything_is_allowed() {
    for profile in ["plan", "review"] {
        let place = Place::new();
        place.write("a.txt", "one\n");
        let allow = "write_file(**),bash(*)";
        assert_eq!(place.run(&["config", "set", "rules.allow", allow]).code, 0);
        let output = run(&place, TRIES, &["--profile", profile, "--yes"]);
        assert_eq!(output.code, 0, "{profile}: {}", output.err);
        assert!(
            !place.work().join("new.txt").exists() && !place.work().join("made.txt").exists(),
            "{profile}"
        );
        let results: Vec<String> = place
            .log()
            .iter()
            .filter(|event| event["kind"] == "call_finished")
            .map(|event| event["data"]["result"]["text"].as_str().unwrap().to_owned())
            .collect();
        assert!(
            results[0].starts_with("Error [unknown_tool]"),
            "{profile}: {results:?}"
        );
    }
}

#[test]
fn a_profile_is_not_loosened_by_flags_or_settings() {
    let place = Place::new();
    for flags in [
        &["--approval", "auto"][..],
        &["--sandbox", "full"],
        &["--sandbox", "workspace-write"],
    ] {
        let output = run(&place, TRIES, &[&["--profile", "plan"], flags].concat());
        assert_eq!(output.code, 2, "{flags:?}: {}", output.err);
        assert!(output.err.contains("does not go with it"), "{}", output.err);
    }
    let output = run(&place, TRIES, &["--profile", "paln"]);
    assert!(
        output.code == 2 && output.err.contains("did you mean `plan`"),
        "{}",
        output.err
    );
}

#[test]
fn a_plan_is_kept_and_another_run_starts_from_it() {
    let place = Place::new();
    place.write("a.txt", "one\n");
    let output = run(&place, TRIES, &["--profile", "plan"]);
    assert_eq!(output.code, 0, "{}", output.err);
    let plans = place.home().join(".local/share/windlass/plans");
    let file = std::fs::read_dir(&plans)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        "# The plan\n\n1. write new.txt\n"
    );
    let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
    assert!(output.err.contains(&name), "{}", output.err);
    let script = "[[step]]\nexpect = \"1. write new.txt\"\ncalls = [{ name = \"write_file\", args = { path = \"new.txt\", content = \"x\" } }]\n[[step]]\ntext = \"done\"\n";
    for given in [name.as_str(), "last", file.to_str().unwrap()] {
        let script = place.script(script);
        let args = [
            "run",
            "--script",
            &script,
            "--profile",
            "implement",
            "--plan",
            given,
            "--validate",
            "none",
        ];
        let output = place.run(&args);
        assert_eq!(output.code, 0, "{given}: {}", output.err);
        assert_eq!(place.read("new.txt"), "x");
        std::fs::remove_file(place.work().join("new.txt")).unwrap();
    }
    let script = place.script(script);
    let output = place.run(&["run", "--script", &script, "--plan", "../../x"]);
    assert!(
        output.code == 2 && output.err.contains("there is no plan"),
        "{}",
        output.err
    );
}

#[test]
fn verifying_runs_commands_and_lands_nothing() {
    let place = Place::new();
    place.write("a.txt", "one\n");
    let script = "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"cat a.txt; echo changed > a.txt\" } }]\n\
                  [[step]]\ntext = \"it works\"\n[[step]]\ntext = \"it works\"\n[[step]]\ntext = \"it works\"\n";
    let output = run(
        &place,
        script,
        &["--profile", "verify", "--validate", "none"],
    );
    assert_ne!(
        output.code, 0,
        "a changed source is not passed over: {}",
        output.err
    );
    assert_eq!(place.read("a.txt"), "one\n");
    let script = "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"cat a.txt\" } }]\n[[step]]\ntext = \"it works\"\n";
    let output = run(
        &place,
        script,
        &["--profile", "verify", "--validate", "none"],
    );
    assert_eq!(output.code, 0, "{}", output.err);
}

#[test]
fn verifying_changes_nothing_of_the_tree_from_any_command() {
    let script = "[[step]]\ncalls = [{ name = \"bash\", args = { command = \"echo changed > a.txt\" } }]\n\
                  [[step]]\ntext = \"it works\"\n[[step]]\ntext = \"it works\"\n[[step]]\ntext = \"it works\"\n";
    for args in [
        &["run", "--in-place", "--profile", "verify", "--yes", "go"][..],
        &["chat", "--profile", "verify", "--yes"],
        &["chat", "--profile", "verify", "--approval", "auto"],
        &["resume", "--profile", "verify", "--yes", "go"],
    ] {
        let place = Place::new();
        place.write("a.txt", "one\n");
        assert_eq!(place.play(crate::place::HELLO, &[]).code, 0);
        let script = place.script(script);
        let output = place.run_with(
            place.command(&[args, &["--script", &script]].concat()),
            "go\n",
        );
        assert_eq!(place.read("a.txt"), "one\n", "{args:?}: {}", output.err);
        assert_ne!(output.code, 0, "{args:?}: {}", output.err);
    }
}

#[test]
fn a_profile_that_only_looks_holds_programs_of_the_settings_too() {
    let place = Place::new();
    place.write("a.txt", "one\n");
    let settings = "[tools.tidy]\ncommand = [\"sh\", \"-c\", \"echo changed > a.txt\"]\neffect = \"read\"\ndescription = \"Tidies up.\"\n\
                    [profiles.plan]\ntools = [\"*\"]\nmode = \"full\"\napproval = \"auto\"\nsandbox = \"workspace-write\"\n";
    let config = place.home().join(".config/windlass");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("config.toml"), settings).unwrap();
    let script = "[[step]]\ncalls = [{ name = \"tidy\", args = {} }, { name = \"python\", args = { code = \"open('a.txt','w').write('x')\" } }, \
                  { name = \"write_file\", args = { path = \"a.txt\", content = \"x\" } }]\n[[step]]\ntext = \"planned\"\n";
    for more in [
        &[][..],
        &["--yes"],
        &["--in-place"],
        &["--isolated", "--yes"],
    ] {
        let output = run(&place, script, &[&["--profile", "plan"], more].concat());
        assert_eq!(place.read("a.txt"), "one\n", "{more:?}: {}", output.err);
        assert_eq!(output.code, 0, "{more:?}: {}", output.err);
        let tried = place
            .log()
            .iter()
            .filter(|event| event["kind"] == "call_finished")
            .count();
        assert!(tried >= 3, "{more:?}: {}", output.err);
    }
}

#[test]
fn a_plan_is_kept_also_when_it_took_an_answer() {
    let place = Place::new();
    let script = "follow = \"history\"\n[[step]]\ncalls = [{ name = \"ask_user\", args = { question = \"red?\" } }]\n\
                  [[step]]\ntext = \"paint it red\"\n";
    let output = run(&place, script, &["--profile", "plan"]);
    assert_eq!(output.code, 5, "{}", output.err);
    let ask: serde_json::Value = serde_json::from_str(output.out.lines().last().unwrap()).unwrap();
    let output = place.run(&["answer", ask["id"].as_str().unwrap(), "yes", "please"]);
    assert_eq!(output.code, 0, "{}", output.err);
    let plans: Vec<_> = std::fs::read_dir(place.home().join(".local/share/windlass/plans"))
        .unwrap()
        .collect();
    assert_eq!(plans.len(), 1, "{}", output.err);
}
