//! Re-indents replacement text to fit the place where it is inserted.
//!
//! Works only if one rule explains the indentation of every matched line: a prefix added, a prefix removed, or another
//! unit such as tabs instead of spaces. Otherwise it returns `None` instead of guessing.

/// A rule that turns the indentation of the wanted text into that of the file.
enum IndentRule<'a> {
    Add(&'a str),
    Strip(&'a str),
    Units {
        from: &'static str,
        to: &'static str,
        shift: isize,
    },
}

const UNITS: [&str; 5] = ["\t", "    ", "  ", "        ", "   "];

/// Applies to `new` the change of indentation that turns `wanted` into `found`. Returns `None` if no single rule fits.
pub(super) fn reindent(wanted: &[&str], found: &[&str], new: &str) -> Option<String> {
    let pairs: Vec<(&str, &str)> = wanted
        .iter()
        .zip(found)
        .filter(|(line, _)| !line.trim().is_empty())
        .map(|(wanted, found)| (indent(wanted), indent(found)))
        .collect();
    let rule = rule(&pairs)?;
    let mut out = String::with_capacity(new.len());
    for line in new.split_inclusive('\n') {
        let body = line.trim_start_matches([' ', '\t']);
        if body.trim().is_empty() {
            out.push_str(body);
        } else {
            out.push_str(&apply(&rule, indent(line))?);
            out.push_str(body);
        }
    }
    Some(out)
}

fn indent(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

fn rule<'a>(pairs: &[(&'a str, &'a str)]) -> Option<IndentRule<'a>> {
    let &(wanted, found) = pairs.first()?;
    if let Some(prefix) = found.strip_suffix(wanted)
        && pairs
            .iter()
            .all(|(wanted, found)| found.strip_suffix(wanted) == Some(prefix))
    {
        return Some(IndentRule::Add(prefix));
    }
    if let Some(prefix) = wanted.strip_suffix(found)
        && pairs
            .iter()
            .all(|(wanted, found)| wanted.strip_suffix(found) == Some(prefix))
    {
        return Some(IndentRule::Strip(prefix));
    }
    UNITS
        .iter()
        .flat_map(|from| UNITS.iter().map(move |to| (*from, *to)))
        .filter(|(from, to)| from != to)
        .find_map(|(from, to)| {
            let shift =
                |&(wanted, found): &(&str, &str)| Some(levels(found, to)? - levels(wanted, from)?);
            let first = shift(pairs.first()?)?;
            pairs
                .iter()
                .all(|pair| shift(pair) == Some(first))
                .then_some(IndentRule::Units {
                    from,
                    to,
                    shift: first,
                })
        })
}

/// The number of units in an indentation, or `None` if it contains anything else.
fn levels(indent: &str, unit: &str) -> Option<isize> {
    let count = indent.len() / unit.len();
    (unit.repeat(count) == indent).then_some(isize::try_from(count).ok()?)
}

fn apply(rule: &IndentRule<'_>, indent: &str) -> Option<String> {
    match rule {
        IndentRule::Add(prefix) => Some(format!("{prefix}{indent}")),
        IndentRule::Strip(prefix) => match indent.strip_prefix(prefix) {
            Some(rest) => Some(rest.to_owned()),
            None => prefix.starts_with(indent).then(String::new),
        },
        IndentRule::Units { from, to, shift } => {
            let mut rest = indent;
            let mut level = *shift;
            while let Some(shorter) = rest.strip_prefix(from) {
                rest = shorter;
                level += 1;
            }
            // The remainder is shorter than a unit: it aligns the line and is kept.
            Some(to.repeat(usize::try_from(level).ok()?) + rest)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reindent;

    #[track_caller]
    fn check(wanted: &str, found: &str, new: &str, expect: Option<&str>) {
        let wanted: Vec<&str> = wanted.lines().collect();
        let found: Vec<&str> = found.lines().collect();
        assert_eq!(reindent(&wanted, &found, new).as_deref(), expect);
    }

    #[test]
    fn a_prefix_is_added_or_removed() {
        check(
            "if a:\n  b",
            "    if a:\n      b",
            "if a:\n  c\n\n  d",
            Some("    if a:\n      c\n\n      d"),
        );
        check(
            "    a\n      b",
            "  a\n    b",
            "    x\n  y\n",
            Some("  x\ny\n"),
        );
    }

    #[test]
    fn tabs_and_spaces_are_translated() {
        check(
            "if a {\n    b\n}",
            "\tif a {\n\t\tb\n\t}",
            "if a {\n    c(\n      d)\n}",
            Some("\tif a {\n\t\tc(\n\t\t  d)\n\t}"),
        );
        check("\ta\n\t\tb", "  a\n    b", "\tx\n", Some("  x\n"));
    }

    #[test]
    fn an_inconsistent_match_is_declined() {
        check("a\n  b", "  a\n     b", "x", None);
        check("    a\n  b", "a\n  b", "x", None);
    }
}
