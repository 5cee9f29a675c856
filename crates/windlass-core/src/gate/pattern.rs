//! Glob matching for rules: `*` matches within a path component, `**` across components, `?` one character. The time is
//! linear in the text for each `*`; there is no regular expression and no allocation.

/// Whether a glob matches a whole path. A path that contains `..` matches nothing.
#[must_use]
pub fn glob_match(pattern: &str, path: &str) -> bool {
    if path.split('/').any(|part| part == "..") {
        return false;
    }
    let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
    matches(pattern.as_bytes(), path.as_bytes(), false)
}

/// Whether a restricting pattern matches a command. Here `*` matches anything. A pattern without a star at its end also
/// matches the same command with more arguments.
pub(super) fn command_hits(pattern: &str, command: &str) -> bool {
    let command = command.trim();
    let more = |bare: &str| {
        command == bare
            || command
                .strip_prefix(bare)
                .is_some_and(|rest| rest.starts_with(' '))
    };
    matches(pattern.as_bytes(), command.as_bytes(), true)
        || more(pattern.strip_suffix(" *").unwrap_or(pattern))
}

/// Whether an allowing pattern covers a whole command. A pattern without a star matches exactly that command. A star at
/// the end matches further arguments, and never extends the last word.
pub(super) fn command_allows(pattern: &str, command: &str) -> bool {
    let Some(bare) = pattern.strip_suffix('*') else {
        return matches(pattern.as_bytes(), command.as_bytes(), true);
    };
    let word_ends = bare.ends_with(|c: char| c.is_alphanumeric());
    let bare = bare.strip_suffix(' ').unwrap_or(bare);
    let exactly = matches(bare.as_bytes(), command.as_bytes(), true);
    let further = if word_ends {
        format!("{bare} *")
    } else {
        pattern.to_owned()
    };
    exactly || matches(further.as_bytes(), command.as_bytes(), true)
}

/// The usual two-pointer match, which backtracks to the last `*` and the last `**`.
fn matches(pattern: &[u8], text: &[u8], star_crosses: bool) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    let mut globstar: Option<(usize, usize)> = None;
    loop {
        if pattern[p..].starts_with(b"**") {
            let mut next = p + 2;
            // `**/` also matches the empty string, so that `**/x` matches `x` at the top level.
            if pattern.get(next) == Some(&b'/') {
                next += 1;
            }
            globstar = Some((next, t));
            star = None;
            p = next;
            continue;
        }
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, t));
            p += 1;
            continue;
        }
        let hit = match (pattern.get(p), text.get(t)) {
            (None, None) => return true,
            (Some(b'?'), Some(c)) => star_crosses || *c != b'/',
            (Some(want), Some(have)) => want == have,
            _ => false,
        };
        if hit {
            p += 1;
            t += 1;
            continue;
        }
        if let Some((after, from)) = star
            && from < text.len()
            && (star_crosses || text[from] != b'/')
        {
            star = Some((after, from + 1));
            (p, t) = (after, from + 1);
            continue;
        }
        let Some((after, from)) = globstar else {
            return false;
        };
        // After `**/` a match may only begin at the start of a component.
        let Some(from) = next_start(pattern, after, text, from) else {
            return false;
        };
        globstar = Some((after, from));
        star = None;
        (p, t) = (after, from);
    }
}

fn next_start(pattern: &[u8], after: usize, text: &[u8], from: usize) -> Option<usize> {
    if from >= text.len() {
        return None;
    }
    if after >= 1 && pattern[after - 1] == b'/' {
        return text[from..]
            .iter()
            .position(|b| *b == b'/')
            .map(|at| from + at + 1);
    }
    Some(from + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, path: &str, expect: bool) {
        assert_eq!(glob_match(pattern, path), expect, "{pattern} on {path}");
    }

    #[test]
    fn globs_match_whole_paths() {
        check("tests/**", "tests/a/b.rs", true);
        check("tests/**", "tests/../../x", false);
        check("tests/**", "testsx/a", false);
        check("src/*.rs", "src/a.rs", true);
        check("src/*.rs", "src/a/b.rs", false);
        check("**/*.md", "README.md", true);
        check("**/*.md", "a/b/c.md", true);
        check("**/x/*.md", "a/x/y/x/c.md", true);
        check("**/b", "a/ab", false);
        check("a?c", "abc", true);
        check("a?c", "a/c", false);
        check("*", "a/b", false);
        check("**", "a/b", true);
        check("mcp__*", "mcp__x__y", true);
        check("a*b*c", "aXbYbZc", true);
    }

    #[test]
    fn restricting_patterns_match_broadly() {
        assert!(command_hits("cargo test*", "cargo tests"));
        assert!(command_hits("git *", "git"));
        assert!(!command_hits("git *", "gitk"));
        assert!(command_hits("rm * -rf", "rm a/b -rf"));
        assert!(command_hits("git push --force", "git push --force origin"));
        assert!(!command_hits(
            "git push --force",
            "git push --force-with-lease"
        ));
    }

    #[test]
    fn allowing_patterns_match_narrowly() {
        for (pattern, command, expect) in [
            ("cargo test*", "cargo test --all", true),
            ("cargo test*", "cargo test", true),
            ("cargo test*", "cargo tester", false),
            ("git log", "git log", true),
            ("git log", "git log -p", false),
            ("git log *", "git log", true),
            ("git log *", "git log -p", true),
            ("git log *", "git logout-helper", false),
            ("./scripts/*", "./scripts/build.sh", true),
            ("npm run test:*", "npm run test:unit", true),
            ("npm run test:*", "npm run testing", false),
        ] {
            assert_eq!(
                command_allows(pattern, command),
                expect,
                "{pattern} on {command}"
            );
        }
    }

    #[test]
    fn many_stars_stay_fast() {
        let pattern = "a*".repeat(200) + "b";
        assert!(!glob_match(&pattern, &"a".repeat(20_000)));
    }
}
