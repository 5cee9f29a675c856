use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::*;

fn command(name: &str, arguments: &str) -> SlashCommand {
    SlashCommand {
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        summary: format!("about {name}"),
    }
}

pub(super) fn composer(options: ComposerOptions) -> Composer {
    Composer::new(ComposerOptions {
        commands: vec![
            command("model", "[name]"),
            command("resume", ""),
            command("help", ""),
        ],
        files: Some(FileIndex::from_paths([
            "src/",
            "src/main.rs",
            "src/my view.rs",
            "README.md",
        ])),
        arguments: Some(Box::new(|name, _| {
            let value = |value: &str| ArgumentChoice {
                value: format!("{name}-{value}"),
                summary: String::new(),
            };
            vec![value("small"), value("large")]
        })),
        ..options
    })
}

/// Types keys: characters, `<name>` for a key of the table such as `<ctrl-a>` or `<up>`, and `<lt>` for `<`.
pub(super) fn press(composer: &mut Composer, keys: &str) -> ComposerOutcome {
    let mut outcome = ComposerOutcome::Handled;
    let mut rest = keys;
    while let Some(c) = rest.chars().next() {
        let (code, modifiers, len) = match rest.strip_prefix('<').and_then(|r| r.split_once('>')) {
            Some(("lt", _)) => (KeyCode::Char('<'), KeyModifiers::NONE, 4),
            Some(("pgdn", _)) => (KeyCode::PageDown, KeyModifiers::NONE, 6),
            Some((name, _)) => {
                let (code, modifiers) = keys::parse_key(name).expect("a key");
                (code, modifiers, name.len() + 2)
            }
            None => (KeyCode::Char(c), KeyModifiers::NONE, c.len_utf8()),
        };
        rest = &rest[len..];
        outcome = composer.key(KeyEvent::new(code, modifiers));
    }
    outcome
}

/// The text with `|` at the cursor.
pub(super) fn shown(composer: &Composer) -> String {
    let buffer = &composer.buffer;
    let (before, after) = buffer.text().split_at(buffer.cursor());
    format!(
        "{}|{}",
        buffer.folds.labelled(before),
        buffer.folds.labelled(after)
    )
}

#[track_caller]
fn check(keys: &str, expect: &str) {
    check_with(ComposerOptions::default(), keys, expect);
}

#[track_caller]
fn check_with(options: ComposerOptions, keys: &str, expect: &str) {
    let mut composer = composer(options);
    let outcome = press(&mut composer, keys);
    let found = match outcome {
        ComposerOutcome::Handled => shown(&composer),
        ComposerOutcome::Submit(submission) => format!("submit {:?}", submission.kind),
        other => format!("{other:?} {}", shown(&composer)),
    };
    assert_eq!(found, expect, "{keys}");
}

pub(super) fn with_history(entries: &[&str]) -> ComposerOptions {
    ComposerOptions {
        history: PromptHistory::with_entries(entries.iter().map(|text| (*text).to_owned())),
        ..ComposerOptions::default()
    }
}

#[test]
fn typing_and_line_breaks() {
    check("hé<left>l<right>o", "hléo|");
    check("a<shift-enter>b<alt-enter>c<ctrl-j>d", "a\nb\nc\nd|");
    check("a\\<enter>b", "a\nb|");
    check("one<enter>", "submit Prompt");
    check(" <enter>", " |");
    check("", "|");
    check("e\u{301}x<left><backspace>", "|x");
}

#[test]
fn emacs_keys_move() {
    check("one two<ctrl-a>", "|one two");
    check("one two<alt-b><alt-b><alt-f>", "one| two");
    check("one<ctrl-j>two<ctrl-a><ctrl-b><ctrl-e>", "one|\ntwo");
    check("one<ctrl-j>two<ctrl-home><ctrl-f>", "o|ne\ntwo");
    check("a.b c<alt-b><alt-b>", "a.|b c");
    check("漢字 x<left><left><left>", "漢|字 x");
}

#[test]
fn emacs_keys_cut_and_insert() {
    check("one two<ctrl-w>", "one |");
    check("one two<ctrl-w><ctrl-w><ctrl-y>", "one two|");
    check("one two<ctrl-a><alt-d><alt-d><ctrl-y>", "one two|");
    check("one two<ctrl-a><ctrl-k>", "|");
    check("ab<ctrl-j>cd<up><ctrl-a><ctrl-k><ctrl-k>", "|cd");
    check("one two<ctrl-u><ctrl-y><ctrl-y>", "one twoone two|");
    check("aa<ctrl-u>bb<ctrl-u><ctrl-y><alt-y>", "aa|");
    check("aa<ctrl-u>bb<ctrl-u><ctrl-y><alt-y><alt-y>", "bb|");
    check("aa<ctrl-u><ctrl-y>x<alt-y>", "aax|");
    check("src/a-b<alt-backspace>", "src/a-|");
    check("src/a-b<ctrl-w>", "|");
    check("ab<ctrl-t>", "ba|");
    check("abc<left><left><ctrl-t>", "ba|c");
    check("a<ctrl-t>", "a|");
    check("ab<ctrl-a><ctrl-d>", "|b");
    check("<ctrl-d>", "Quit |");
}

#[test]
fn undo_and_redo_work_by_words() {
    check("one two three<ctrl-_>", "one two |");
    check("one two three<ctrl-_><ctrl-_><ctrl-_><ctrl-_>", "|");
    check("one two three<ctrl-_><ctrl-_><alt-_>", "one two |");
    check("one two<ctrl-_>x<alt-_>", "one x|");
    check("one<backspace><backspace><ctrl-_>", "one|");
    check("one<ctrl-a><ctrl-k><ctrl-_>", "|one");
}

#[test]
fn ctrl_c_never_loses_text() {
    check("one<ctrl-c>", "Cleared |");
    check("one<ctrl-c><ctrl-c>", "Interrupt |");
    check("one<ctrl-c><up>", "one|");
    check("one<ctrl-c><ctrl-_>", "one|");
}

#[test]
fn the_history_keeps_the_draft() {
    let entries = ["fix it", "test\nall", "fix that"];
    let check = |keys: &str, expect: &str| check_with(with_history(&entries), keys, expect);
    check("<up>", "fix that|");
    check("<up><up>", "test\nall|");
    check("<up><up><up><up>", "fix it|");
    check("dr<ctrl-p><ctrl-p><down><down>", "dr|");
    check("fix<up><up>", "fix it|");
    check("fix<up><up><down><down>", "fix|");
    check("fix i<alt-p>", "fix it|");
    check("<up>x<down>", "fix thatx|");
    check("<up><up><left><up>", "te|st\nall");
    check("none<up>", "none|");
    check("<down>", "|");
}

#[test]
fn the_search_finds_older_prompts() {
    let entries = ["fix the parser", "run tests", "fix docs"];
    let check = |keys: &str, expect: &str| check_with(with_history(&entries), keys, expect);
    check("<ctrl-r>fix<enter>", "fix docs|");
    check("<ctrl-r>fix<ctrl-r><enter>", "fix the parser|");
    check("<ctrl-r>fix<ctrl-r><ctrl-r><enter>", "fix the parser|");
    check("<ctrl-r>fix<ctrl-r><ctrl-n><enter>", "fix docs|");
    check("<ctrl-r>fix<up><down><down><enter>", "fix docs|");
    check("<ctrl-r>FIX<enter>", "|");
    check("<ctrl-r>fixp<backspace><enter>", "fix docs|");
    check("dr<ctrl-r>run<ctrl-c>", "dr|");
    check("<ctrl-r>run<ctrl-a>", "|run tests");
    check("<ctrl-r>run<esc><ctrl-_>", "|");
}

#[test]
fn commands_complete() {
    check("/mo<tab>", "/model |");
    check("/res<tab>", "/resume|");
    check(
        "/res<enter>",
        "submit Command { name: \"resume\", arguments: \"\" }",
    );
    check("/mo<enter>", "/model |");
    check(
        "/model<enter>",
        "submit Command { name: \"model\", arguments: \"\" }",
    );
    check(
        "/model x<enter>",
        "submit Command { name: \"model\", arguments: \"x\" }",
    );
    check("/model lar<tab>", "/model model-large|");
    check(
        "/model <down><enter>",
        "submit Command { name: \"model\", arguments: \"model-large\" }",
    );
    check("/<down><tab>", "/resume|");
    check("/<up><tab>", "/help|");
    check("/xyz<enter>", "/xyz|");
    check("!ls<enter>", "submit Shell(\"ls\")");
    check("#use tabs<enter>", "submit Note(\"use tabs\")");
    check("/usr/bin/x is broken<enter>", "submit Prompt");
}

#[test]
fn files_complete() {
    check("see @mai<tab>", "see @src/main.rs |");
    check("see @view<enter>", "see @\"src/my view.rs\" |");
    check("@src<tab>", "@src/|");
    check("@src/<down><tab>", "@\"src/my view.rs\" |");
    check("@mai<esc><enter>", "submit Prompt");
    check("@mai<esc>n<tab><tab>", "@src/main.rs |");
    check("@zzz<enter>", "submit Prompt");
    check("@README.md<enter>", "submit Prompt");
}

#[test]
fn the_result_of_an_editor_replaces_the_text() {
    let mut composer = composer(ComposerOptions::default());
    composer.paste("long\n".repeat(30));
    let ComposerOutcome::OpenEditor(text) = press(&mut composer, "<ctrl-g>") else {
        panic!("no editor");
    };
    composer.set_text(&format!("{text}\n"));
    assert_eq!(shown(&composer), "[pasted 30 lines #1]|");
    composer.set_text("other\n");
    assert_eq!(shown(&composer), "other|");
    press(&mut composer, "<ctrl-_>");
    assert_eq!(shown(&composer), "[pasted 30 lines #1]|");
}

#[test]
fn long_pastes_are_one_unit_and_expand_on_submit() {
    let mut composer = composer(ComposerOptions::default());
    let paste: String = (0..214)
        .map(|n| format!("line {n}\u{1b}[31m\r\n"))
        .collect();
    press(&mut composer, "see ");
    composer.paste(paste.clone());
    assert_eq!(shown(&composer), "see [pasted 214 lines #1]|");
    press(&mut composer, "<left><left>");
    assert_eq!(shown(&composer), "see| [pasted 214 lines #1]");
    press(&mut composer, "<right><right><backspace>");
    assert_eq!(shown(&composer), "see |");
    press(&mut composer, "<ctrl-_>");
    composer.paste("x".repeat(2001));
    assert_eq!(
        shown(&composer),
        "see [pasted 214 lines #1][pasted 2001 characters #2]|"
    );
    let ComposerOutcome::Submit(submission) = press(&mut composer, "<enter>") else {
        panic!("not submitted");
    };
    let clean: String = (0..214).map(|n| format!("line {n}[31m\n")).collect();
    assert_eq!(submission.text, format!("see {clean}{}", "x".repeat(2001)));
    assert_eq!(
        submission.shown,
        "see [pasted 214 lines #1][pasted 2001 characters #2]"
    );
    press(&mut composer, "<up>");
    assert_eq!(
        shown(&composer),
        "see [pasted 214 lines #1][pasted 2001 characters #2]|"
    );
    press(&mut composer, "<backspace><alt-o>");
    assert_eq!(composer.buffer.text(), format!("see {clean}"));
    press(&mut composer, "<ctrl-_>");
    assert_eq!(shown(&composer), "see [pasted 214 lines #1]|");
}

#[test]
fn a_cut_paste_is_not_mixed_up_with_one_of_the_next_prompt() {
    for keys in ["<ctrl-u>", "<esc>0D"] {
        let mut composer = composer(ComposerOptions {
            vi_mode: true,
            ..ComposerOptions::default()
        });
        composer.paste("old\n".repeat(20));
        press(&mut composer, keys);
        press(&mut composer, "<esc>isent<enter>");
        composer.paste("new\n".repeat(20));
        press(&mut composer, "<alt-o><ctrl-u>");
        composer.set_text("");
        press(
            &mut composer,
            if keys == "<ctrl-u>" {
                "<ctrl-y><alt-y>"
            } else {
                "<esc>p"
            },
        );
        let text = composer.text();
        assert!(!text.contains('\u{100000}'), "{keys}");
        assert!(text.starts_with("old\n"), "{keys} {text}");
    }
}

#[test]
fn a_paste_that_occurs_too_often_is_refused() {
    let mut composer = composer(ComposerOptions::default());
    composer.paste("x".repeat(20 << 20));
    press(&mut composer, "<ctrl-u><ctrl-y><ctrl-y><ctrl-y>");
    assert!(matches!(
        press(&mut composer, "<ctrl-g>"),
        ComposerOutcome::OpenEditor(_)
    ));
    press(&mut composer, "<ctrl-y>");
    assert_eq!(press(&mut composer, "<enter>"), ComposerOutcome::Handled);
    assert_eq!(composer.notice.as_deref(), Some(TOO_LARGE));
    assert_eq!(press(&mut composer, "<ctrl-g>"), ComposerOutcome::Handled);
    composer.paste("y".repeat(20 << 20));
    assert_eq!(
        composer.notice.as_deref(),
        Some(TOO_LARGE),
        "the pastes of a prompt have a limit"
    );
}

#[test]
fn ctrl_c_in_insert_mode_of_vi_can_be_undone() {
    let vi = ComposerOptions {
        vi_mode: true,
        ..ComposerOptions::default()
    };
    check_with(vi, "<esc>ione two<ctrl-c><ctrl-_>", "one two|");
}

/// A store that fails.
struct FullDisk;

impl HistoryStore for FullDisk {
    fn load(&mut self) -> io::Result<Vec<FoldedText>> {
        Err(io::Error::other("disk full"))
    }

    fn append(&mut self, _: &FoldedText) -> io::Result<()> {
        Err(io::Error::other("disk full"))
    }
}

#[test]
fn a_failing_store_is_reported_and_loses_no_text() {
    let (history, failure) = PromptHistory::with_store(Box::new(FullDisk));
    assert!(history.is_empty() && failure.is_some());
    let mut composer = composer(ComposerOptions {
        history,
        ..ComposerOptions::default()
    });
    assert_eq!(
        press(&mut composer, "one<ctrl-c>"),
        ComposerOutcome::Cleared
    );
    let notice = "the history could not be written: disk full";
    assert_eq!(composer.notice.as_deref(), Some(notice));
    press(&mut composer, "<up>");
    assert_eq!(shown(&composer), "one|");
}

#[test]
fn submitted_prompts_are_in_the_history_of_the_next_session() {
    let dir = tempfile::tempdir().expect("a directory");
    let open = || {
        let store = FileHistoryStore::new(dir.path().join("history.jsonl"));
        let (history, failure) = PromptHistory::with_store(Box::new(store));
        assert!(failure.is_none());
        composer(ComposerOptions {
            history,
            ..ComposerOptions::default()
        })
    };
    let mut first = open();
    press(&mut first, "one<enter>");
    first.paste("line\n".repeat(30));
    press(&mut first, "<enter>three<ctrl-c>");
    let mut second = open();
    press(&mut second, "<up>");
    assert_eq!(shown(&second), "three|");
    press(&mut second, "<up>");
    assert_eq!(shown(&second), "[pasted 30 lines #1]|");
    press(&mut second, "<up>");
    assert_eq!(shown(&second), "one|");
}

#[test]
fn images_become_attachments() {
    let mut composer = composer(ComposerOptions::default());
    composer.paste("'/tmp/my shot.png'\n".to_owned());
    assert_eq!(shown(&composer), "@\"/tmp/my shot.png\" |");
    let ComposerOutcome::Submit(submission) = press(&mut composer, "and @a.jpg.<esc><enter>")
    else {
        panic!("not submitted");
    };
    let paths: Vec<_> = submission
        .attachments
        .iter()
        .map(|a| a.path.as_str())
        .collect();
    assert_eq!(paths, ["/tmp/my shot.png", "a.jpg"]);
}

#[test]
fn esc_closes_a_notice_before_it_reaches_the_application() {
    let mut composer = composer(ComposerOptions::default());
    press(&mut composer, "/modle<enter>");
    assert_eq!(press(&mut composer, "<esc>"), ComposerOutcome::Handled);
    assert_eq!(press(&mut composer, "<esc>"), ComposerOutcome::Ignored);
}

#[test]
fn a_composer_can_move_to_another_thread() {
    fn check<T: Send + 'static>() {}
    check::<Composer>();
    check::<ListPicker<String>>();
}

#[test]
fn drafts_are_stored_and_restored() {
    use std::time::{Duration, Instant};
    let dir = tempfile::tempdir().expect("a directory");
    let open = || {
        let drafts = FileDraftStore::new(dir.path(), std::path::Path::new("/work"));
        composer(ComposerOptions {
            drafts: Some(Box::new(drafts)),
            ..ComposerOptions::default()
        })
    };
    let now = Instant::now();
    let mut first = open();
    assert!(!first.restore_draft().expect("no draft"));
    press(&mut first, "half a prompt ");
    first.paste("x\n".repeat(20));
    assert!(first.draft_changed() && first.save_draft(now).expect("saved"));
    assert!(!first.draft_changed());
    press(&mut first, "!");
    assert!(
        !first
            .save_draft(now + Duration::from_millis(499))
            .expect("not due")
    );
    assert!(
        first
            .save_draft(now + Duration::from_millis(500))
            .expect("saved")
    );

    let mut second = open();
    assert!(second.restore_draft().expect("a draft"));
    assert_eq!(shown(&second), "half a prompt [pasted 20 lines #1]!|");
    assert!(!second.draft_changed());
    press(&mut second, "<enter>");
    assert!(!open().restore_draft().expect("removed"));
}
