use super::super::tests::{composer, press, shown};
use super::super::{ComposerOptions, ComposerOutcome};

/// Starts with a text whose `|` is the cursor, in normal mode.
#[track_caller]
fn check(start: &str, keys: &str, expect: &str) {
    let mut composer = composer(ComposerOptions {
        vi_mode: true,
        ..ComposerOptions::default()
    });
    let cursor = start.find('|').expect("a cursor");
    composer.set_text(&start.replace('|', ""));
    press(&mut composer, "<esc>");
    composer.buffer.move_to(cursor);
    press(&mut composer, keys);
    assert_eq!(shown(&composer), expect, "{start:?} {keys}");
}

#[test]
fn motions() {
    check("|one two", "l", "o|ne two");
    check("|one two", "3l", "one| two");
    check("one |two", "h", "one| two");
    check("|one two", "9l", "one tw|o");
    check("|one, two", "w", "one|, two");
    check("|one, two", "2w", "one, |two");
    check("|one, two", "W", "one, |two");
    check("one two|x", "b", "one |twox");
    check("one, two|x", "2b", "one|, twox");
    check("one.x two|x", "BB", "|one.x twox");
    check("|one two", "e", "on|e two");
    check("|one two", "ee", "one tw|o");
    check("|one.a two", "E", "one.|a two");
    check("  one t|wo", "0", "|  one two");
    check("  one t|wo", "^", "  |one two");
    check("|one two", "$", "one tw|o");
    check("one\n|two\nthree", "gg", "|one\ntwo\nthree");
    check("one\n|two\nthree", "G", "one\ntwo\n|three");
    check("|one\ntwo\nthree", "2G", "one\n|two\nthree");
    check("o|ne\ntwo", "j", "one\nt|wo");
    check("one\ntw|o", "k", "on|e\ntwo");
    check("one\n|\ntwo", "w", "one\n\n|two");
    check("o|ne", "l<left>", "o|ne");
}

#[test]
fn finding_characters() {
    check("|a.b.c", "f.", "a|.b.c");
    check("|a.b.c", "2f.", "a.b|.c");
    check("|a.b.c", "f.;", "a.b|.c");
    check("|a.b.c", "2f.,", "a|.b.c");
    check("|ab.c", "t.", "a|b.c");
    check("|ab.c.d", "t.;", "ab.|c.d");
    check("a.b.|c", "F.", "a.b|.c");
    check("a.b.|c", "T.h", "a.b|.c");
    check("a.bb|c", "T.", "a.|bbc");
    check("|abc", "fx", "|abc");
}

#[test]
fn insert_commands() {
    check("a|b", "ix", "ax|b");
    check("a|b", "ax", "abx|");
    check("  a|b", "Ix", "  x|ab");
    check("|ab", "Ax", "abx|");
    check("a|b\nc", "ox", "ab\nx|\nc");
    check("ab\n|c", "Ox", "ab\nx|\nc");
    check("|ab", "ix<esc>", "|xab");
    check("a|b", "ione two<esc>u", "a|b");
    check("a|b", "ione two<esc>u<ctrl-r>", "aone two|b");
}

#[test]
fn deleting_and_changing() {
    check("|abc", "x", "|bc");
    check("|abc", "2x", "|c");
    check("ab|c", "x", "a|b");
    check("ab|c", "X", "a|c");
    check("|one two", "dw", "|two");
    check("|one two three", "d2w", "|three");
    check("|one two three", "2dw", "|three");
    check("one |two\nthree", "dw", "one| \nthree");
    check("one |two", "d$", "one| ");
    check("one |two", "D", "one| ");
    check("one| two", "d0", "| two");
    check("one two|x", "db", "one |x");
    check("|one two", "de", "| two");
    check("|a(b)c", "df)", "|c");
    check("|a(b)c", "dt)", "|)c");
    check("|one\ntwo\nthree", "dd", "|two\nthree");
    check("one\n|two\nthree", "2dd", "|one");
    check("one\n|two", "dd", "|one");
    check("|one", "dd", "|");
    check("|one\ntwo\nthree", "dj", "|three");
    check("one\ntwo\n|three", "dk", "|one");
    check("one\n|two\nthree", "dgg", "|three");
    check("|one\ntwo", "dG", "|");
    check("|one two", "cwx", "x| two");
    check("|one two three", "c2wx", "x| three");
    check("one |two", "ccx", "x|");
    check("a\n|two\nb", "ccx", "a\nx|\nb");
    check("one |two", "Cx", "one x|");
    check("|abc", "sx", "x|bc");
    check("|one two", "cwx<esc>u", "|one two");
    check("|one", "d<esc>x", "|ne");
    check("|one", "dq", "|one");
}

#[test]
fn copying_and_inserting() {
    check("|one two", "ywP", "one| one two");
    check("|ab", "xp", "b|a");
    check("|ab", "yl3p", "aaa|ab");
    check("|one\ntwo", "yyp", "one\n|one\ntwo");
    check("one\n|two", "yyP", "one\n|two\ntwo");
    check("|one\ntwo", "ddp", "two\n|one");
    check("|one\ntwo", "Yjp", "one\ntwo\n|one");
    check("|one\ntwo", "2yyGp", "one\ntwo\n|one\ntwo");
    check("|x", "p", "|x");
}

#[test]
fn other_commands() {
    check("|abc", "rx", "|xbc");
    check("|abc", "2rx", "x|xc");
    check("|abc", "9rx", "|abc");
    check("|aBc", "~~", "Ab|c");
    check("|abc", "3~", "AB|C");
    check("|one\n  two", "J", "one| two");
    check("|abc", "xxu", "|bc");
    check("|abc", "xxuu<ctrl-r>", "|bc");
    check("|abc", "xx2u", "|abc");
    check("|ab", "99999x", "|");
    check("|ab", "gx", "|ab");
}

#[test]
fn the_mode_is_shown_and_enter_submits_in_both_modes() {
    let mut composer = composer(ComposerOptions {
        vi_mode: true,
        ..ComposerOptions::default()
    });
    assert_eq!(composer.view(40, 2).indicator, Some("INSERT"));
    press(&mut composer, "abc<esc>");
    assert_eq!(composer.view(40, 2).indicator, Some("NORMAL"));
    assert_eq!(press(&mut composer, "<esc>"), ComposerOutcome::Ignored);
    assert!(matches!(
        press(&mut composer, "<enter>"),
        ComposerOutcome::Submit(_)
    ));
    assert_eq!(composer.view(40, 2).indicator, Some("INSERT"));
    press(&mut composer, "<esc>k");
    assert_eq!(
        shown(&composer),
        "ab|c",
        "`k` in the first row shows the history"
    );
}
