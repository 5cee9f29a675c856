//! Tests of settings: layers, errors and edits.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;

use super::*;

const fn key(name: &'static str, kind: SettingKind) -> Key {
    Key {
        name,
        kind,
        doc: "for tests",
    }
}

const KEYS: &[Key] = &[
    key("model", SettingKind::Text),
    key(
        "approval",
        SettingKind::Choice(&["plan", "ask", "edit", "auto"]),
    ),
    key("budget.steps", SettingKind::Limit),
    key("budget.usd", SettingKind::Limit),
    key("tools.parallel", SettingKind::Integer),
    key("tools.shell.env", SettingKind::Texts),
    key("color", SettingKind::Boolean),
    key("prices.*.input", SettingKind::Number),
];

fn layers(text: &str) -> Result<Layers<'static>, ConfigError> {
    let mut layers = Layers::new(KEYS);
    layers.add_text(SettingsLayer::User, Path::new("c.toml"), text)?;
    Ok(layers)
}

#[test]
fn every_value_knows_its_file_and_line() {
    let text = "# mine\nmodel = \"m\"\n\n[budget]\nsteps = 50\nusd = \"unlimited\"\n[prices.\"gpt-4.1\"]\ninput = 2\n\
                [tools]\nshell = { env = [\"A\"] }\n";
    let layers = layers(text).unwrap();
    let all: Vec<_> = layers
        .iter()
        .map(|(name, it)| format!("{name} = {} ({})", it.value, it.origin))
        .collect();
    assert_eq!(
        all,
        [
            "budget.steps = 50 (c.toml:5)",
            "budget.usd = \"unlimited\" (c.toml:6)",
            "model = \"m\" (c.toml:2)",
            "prices.\"gpt-4.1\".input = 2 (c.toml:8)",
            "tools.shell.env = [\"A\"] (c.toml:10)",
        ]
    );
    assert_eq!(
        (layers.text("model"), layers.integer("budget.steps")),
        (Some("m"), Some(50))
    );
    assert_eq!(layers.number("prices.\"gpt-4.1\".input"), Some(2.0));
    assert_eq!(layers.texts("tools.shell.env").unwrap(), ["A"]);
    assert_eq!(
        (layers.boolean("color"), layers.text("budget.steps")),
        (None, None)
    );
}

#[test]
fn the_layer_with_the_higher_precedence_wins_in_any_order() {
    let mut layers = Layers::new(KEYS);
    layers
        .add(SettingsLayer::Flag, "model", "flag", "--model")
        .unwrap();
    layers
        .add_text(
            SettingsLayer::Project,
            Path::new("p.toml"),
            "model = \"project\"",
        )
        .unwrap();
    layers
        .add(SettingsLayer::Default, "model", "default", "default")
        .unwrap();
    layers
        .add_text(SettingsLayer::Managed, Path::new("m1.toml"), "color = true")
        .unwrap();
    layers
        .add_text(
            SettingsLayer::Managed,
            Path::new("m2.toml"),
            "color = false",
        )
        .unwrap();
    let stack: Vec<_> = layers
        .stack("model")
        .map(|it| it.origin.place.as_str())
        .collect();
    assert_eq!(stack, ["--model", "p.toml:1", "default"]);
    assert_eq!(layers.get("color").unwrap().origin.place, "m2.toml:1");
    assert_eq!(layers.boolean("color"), Some(false));
}

#[track_caller]
fn check_refused(text: &str, expect: &str) {
    assert_eq!(layers(text).unwrap_err().0, expect);
}

#[test]
fn errors_show_file_line_and_column() {
    check_refused(
        "color = true\nmodle = \"m\"",
        "c.toml:2:1: unknown key `modle`; did you mean `model`?\n  |\n2 | modle = \"m\"\n  | ^^^^^",
    );
    check_refused(
        "[budget]\nstep = 5",
        "c.toml:2:1: unknown key `budget.step`; did you mean `budget.steps`?\n  |\n2 | step = 5\n  | ^^^^",
    );
    check_refused(
        "[nothing.like]\nx = 1",
        "c.toml:1:2: unknown key `nothing`; `windlass config` lists the keys\n  |\n1 | [nothing.like]\n  |  ^^^^^^^",
    );
    check_refused(
        "model = 5",
        "c.toml:1:9: `model` must be a text in quotes\n  |\n1 | model = 5\n  |         ^",
    );
    check_refused(
        "budget.steps = 0",
        "c.toml:1:16: `budget.steps` must be a number above zero, or \"unlimited\"\n  |\n1 | budget.steps = 0\n  |                ^",
    );
    check_refused(
        "approval = \"yolo\"",
        "c.toml:1:12: `approval` must be one of \"plan\", \"ask\", \"edit\", \"auto\"\n  |\n1 | approval = \"yolo\"\n  |            ^^^^^^",
    );
    let broken = layers("color = true\nmodel = \"m").unwrap_err().0;
    assert!(broken.starts_with("c.toml:2:"), "{broken}");
    assert!(broken.contains("2 | model = \"m\n"), "{broken}");
    assert!(layers("model = \"\u{1b}[31m\"").is_err_and(|err| !err.0.contains('\u{1b}')));
    assert!(
        layers("color = 1979-05-27").is_err()
            && layers("[model]\nx = 1").is_err()
            && layers("[[model]]").is_err()
    );
}

#[track_caller]
fn check_plain(name: &str, raw: &str, expect: Result<&str, &str>) {
    let mut layers = Layers::new(KEYS);
    let added = layers.add(SettingsLayer::Environment, name, raw, "WINDLASS_X");
    match (added, expect) {
        (Ok(()), Ok(value)) => assert_eq!(layers.iter().next().unwrap().1.value.to_string(), value),
        (Err(err), Err(part)) => assert!(
            err.0.starts_with("WINDLASS_X: ") && err.0.contains(part),
            "{err}"
        ),
        (added, _) => panic!("{name}={raw}: {added:?}"),
    }
}

#[test]
fn plain_text_is_parsed_to_the_type_of_the_key() {
    check_plain("model", "gpt", Ok("\"gpt\""));
    check_plain("budget.usd", "2.5", Ok("2.5"));
    check_plain("budget.steps", "unlimited", Ok("\"unlimited\""));
    check_plain("tools.shell.env", "A, B", Ok("[\"A\", \"B\"]"));
    check_plain("tools.shell.env", "[\"A,B\"]", Ok("[\"A,B\"]"));
    check_plain("prices.\"a.b\".input", "1", Ok("1"));
    check_plain("budget.steps", "0", Err("above zero"));
    check_plain("budget.usd", "inf", Err("above zero"));
    check_plain("color", "maybe", Err("true or false"));
    check_plain("colour", "true", Err("did you mean `color`?"));
    check_plain("", "x", Err("not a key"));
}

#[test]
fn setting_a_value_keeps_every_other_byte() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("windlass/config.toml");
    set(&path, KEYS, "budget.steps", "10").unwrap();
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        "[budget]\nsteps = 10\n"
    );
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o644);
    std::fs::write(
        &path,
        "# top\nmodel   = 'a' # why\n\n[budget] # b\nsteps = 1\n",
    )
    .unwrap();
    set(&path, KEYS, "model", "b").unwrap();
    set(&path, KEYS, "budget.usd", "unlimited").unwrap();
    set(&path, KEYS, "tools.shell.env", "A").unwrap();
    unset(&path, KEYS, "budget.steps").unwrap();
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        "# top\nmodel   = \"b\" # why\n\n[budget] # b\nusd = \"unlimited\"\n\n[tools.shell]\nenv = [\"A\"]\n"
    );
    assert!(
        set(&path, KEYS, "modle", "x")
            .unwrap_err()
            .0
            .contains("did you mean")
    );
    assert!(
        set(&path, KEYS, "color", "x")
            .unwrap_err()
            .0
            .contains("true or false")
    );
    std::fs::write(&path, "nope = 1").unwrap();
    assert!(set(&path, KEYS, "model", "x").is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "nope = 1");
}

#[test]
fn a_missing_file_adds_nothing_and_an_unreadable_one_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut layers = Layers::new(KEYS);
    assert_eq!(
        layers.add_file(SettingsLayer::User, &dir.path().join("none.toml")),
        Ok(false)
    );
    let err = layers
        .add_file(SettingsLayer::User, dir.path())
        .unwrap_err();
    assert!(err.0.contains("is a directory"), "{err}");
    let big = dir.path().join("big.toml");
    std::fs::write(&big, vec![b'#'; 2 * 1024 * 1024]).unwrap();
    assert!(
        layers
            .add_file(SettingsLayer::User, &big)
            .unwrap_err()
            .0
            .contains("more than the limit")
    );
    std::fs::write(&big, [0xff]).unwrap();
    assert!(
        layers
            .add_file(SettingsLayer::User, &big)
            .unwrap_err()
            .0
            .contains("not UTF-8")
    );
}

#[test]
fn managed_files_come_in_order() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(
        managed_files(dir.path()).unwrap(),
        [dir.path().join("config.toml")]
    );
    std::fs::create_dir(dir.path().join("conf.d")).unwrap();
    for name in ["20.toml", "10.toml", "notes.txt"] {
        std::fs::write(dir.path().join("conf.d").join(name), "").unwrap();
    }
    let names =
        ["config.toml", "conf.d/10.toml", "conf.d/20.toml"].map(|name| dir.path().join(name));
    assert_eq!(managed_files(dir.path()).unwrap(), names);
}

#[test]
fn places_follow_xdg() {
    let places = |vars: &'static [(&str, &str)]| {
        Places::from_env(|name| {
            vars.iter()
                .find(|(it, _)| *it == name)
                .map(|(_, value)| value.into())
        })
    };
    let home = places(&[("HOME", "/h"), ("XDG_DATA_HOME", "relative")]).unwrap();
    assert_eq!(
        home.config_file(),
        Path::new("/h/.config/windlass/config.toml")
    );
    assert_eq!(
        home.sessions_dir(),
        Path::new("/h/.local/share/windlass/sessions")
    );
    let xdg = places(&[("XDG_CONFIG_HOME", "/c"), ("XDG_DATA_HOME", "/d")]).unwrap();
    assert_eq!(
        (xdg.credentials_file(), xdg.home),
        ("/c/windlass/credentials.toml".into(), None)
    );
    assert!(places(&[]).unwrap_err().0.contains("HOME"));
}

proptest! {
    /// A wrong bound would hide suggestions.
    #[test]
    fn the_bound_is_at_most_the_edit_distance(one in "[a-dé-]{0,8}", other in "[a-dé-]{0,8}") {
        prop_assert!(least_edits(&one, &other) <= strsim::damerau_levenshtein(&one, &other));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[\\[\\]\\.a-z=\"'\\{\\}, \\n\\t0-9#é\u{1b}]{0,60}") {
        let _ = layers(&text);
    }

    #[test]
    fn a_value_that_was_set_is_read_back(value in "\\PC{0,30}") {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        set(&path, KEYS, "model", &value).unwrap();
        let mut layers = Layers::new(KEYS);
        layers.add_file(SettingsLayer::User, &path).unwrap();
        prop_assert_eq!(layers.text("model"), Some(value.as_str()));
    }
}
