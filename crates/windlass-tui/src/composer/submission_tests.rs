use super::*;

const COMMANDS: [&str; 3] = ["model", "resume", "help"];

#[track_caller]
fn check(text: &str, expect: &str) {
    let folded = FoldedText::from(text.to_owned());
    let found = match parse(&folded, text.to_owned(), COMMANDS.into_iter()) {
        Ok(submission) => match submission.kind {
            SubmissionKind::Prompt => "prompt".to_owned(),
            SubmissionKind::Shell(command) => format!("shell {command}"),
            SubmissionKind::Note(note) => format!("note {note}"),
            SubmissionKind::Command { name, arguments } => format!("command {name}({arguments})"),
        },
        Err(SubmissionError::Empty) => "empty".to_owned(),
        Err(SubmissionError::Invalid(text)) => text,
    };
    assert_eq!(found, expect, "{text:?}");
}

#[test]
fn the_prefix_decides_the_kind() {
    check("fix it", "prompt");
    check(" \n\t", "empty");
    check("!ls -l", "shell ls -l");
    check("! ", "type a shell command after `!`");
    check("#use tabs\nplease", "note use tabs\nplease");
    check("/model", "command model()");
    check("/model  opus \n", "command model(opus)");
    check(" /model", "prompt");
    check(" !ls", "prompt");
    check("/usr/bin/x is broken", "prompt");
    check("/resume/x", "prompt");
}

#[test]
fn an_unknown_command_names_the_nearest_one() {
    check(
        "/modle x",
        "unknown command `/modle`; did you mean `/model`?",
    );
    check("/res", "unknown command `/res`; did you mean `/resume`?");
    check(
        "/quit",
        "unknown command `/quit`; `/help` lists the commands; a space before `/` makes it a prompt",
    );
    check(
        "/",
        "unknown command `/`; `/help` lists the commands; a space before `/` makes it a prompt",
    );
}

#[test]
fn images_of_mentions_are_attachments() {
    let paths = |text: &str| -> Vec<String> {
        image_mentions(text)
            .into_iter()
            .map(|image| image.path)
            .collect()
    };
    assert_eq!(
        paths("see @a.png, @\"my shot.JPG\" (@b.webp) and me@c.png @a.png @x.rs"),
        ["a.png", "my shot.JPG", "b.webp"]
    );
    assert_eq!(paths("@\"open.png @\"a\\\"b.png\""), ["a\"b.png"; 0]);
    assert_eq!(paths("@.png @ @"), [""; 0]);
}

#[test]
fn a_mention_of_any_path_can_be_read_again() {
    for path in ["a b.png", "a.png", "q\"x.png", "ä ö.gif"] {
        let text = format!("see {} now", file_mention(path));
        let read: Vec<String> = image_mentions(&text).into_iter().map(|i| i.path).collect();
        assert_eq!(read, [path]);
    }
}

#[test]
fn pasted_paths_of_images_are_recognized() {
    let check = |paste: &str, path: Option<&str>| {
        assert_eq!(pasted_image(paste).as_deref(), path, "{paste}");
    };
    check("/home/me/shot.png\n", Some("/home/me/shot.png"));
    check("'/home/me/my shot.png' ", Some("/home/me/my shot.png"));
    check("/home/me/my\\ shot.png", Some("/home/me/my shot.png"));
    check("file:///tmp/a%20b.jpeg", Some("/tmp/a b.jpeg"));
    check("file:///tmp/a%2", None);
    check("look at /tmp/a.png", None);
    check("shot.png", None);
    check("/tmp/a.txt", None);
    check("'", None);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig {
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn no_text_makes_the_parsers_panic(text in ".{0,60}", at in r#"[ @"'\\/!#.a%2~]{0,30}(png|/model )?"#) {
        for text in [text.as_str(), at.as_str(), &format!("{at}{text}")] {
            let folded = FoldedText { text: text.to_owned(), pastes: Vec::new() };
            let _ = parse(&folded, String::new(), COMMANDS.into_iter());
            let _ = pasted_image(text);
            image_mentions(text);
        }
    }

    #[test]
    fn every_path_of_an_image_survives_its_mention(name in r"[^\p{Cc}\p{Co}]{1,20}") {
        let path = format!("{name}.png");
        let text = format!("({} x", file_mention(&path));
        proptest::prop_assert_eq!(image_mentions(&text), [PromptAttachment { path }]);
    }
}
