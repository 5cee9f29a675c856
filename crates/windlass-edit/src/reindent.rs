//! Moves replacement text to the indentation of the place it goes to.
//!
//! Works only where one rule explains every line of the match (a prefix added, a prefix removed,
//! or another unit such as tabs for spaces); otherwise it declines instead of guessing.

/// The one rule that turns the indentation of the wanted text into that of the file.
enum Rule<'a> {
    Add(&'a str),
    Strip(&'a str),
    Units {
        from: &'static str,
        to: &'static str,
        shift: isize,
    },
}

const UNITS: [&str; 5] = ["\t", "    ", "  ", "        ", "   "];

/// `new` re-indented as `wanted` would have to be to equal `found`, or nothing when no single rule fits.
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

fn rule<'a>(pairs: &[(&'a str, &'a str)]) -> Option<Rule<'a>> {
    let &(wanted, found) = pairs.first()?;
    if let Some(prefix) = found.strip_suffix(wanted)
        && pairs
            .iter()
            .all(|(wanted, found)| found.strip_suffix(wanted) == Some(prefix))
    {
        return Some(Rule::Add(prefix));
    }
    if let Some(prefix) = wanted.strip_suffix(found)
        && pairs
            .iter()
            .all(|(wanted, found)| wanted.strip_suffix(found) == Some(prefix))
    {
        return Some(Rule::Strip(prefix));
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
                .then_some(Rule::Units {
                    from,
                    to,
                    shift: first,
                })
        })
}

/// How many whole units an indentation has, if it is made of nothing else.
fn levels(indent: &str, unit: &str) -> Option<isize> {
    let count = indent.len() / unit.len();
    (unit.repeat(count) == indent).then_some(isize::try_from(count).ok()?)
}

fn apply(rule: &Rule<'_>, indent: &str) -> Option<String> {
    match rule {
        Rule::Add(prefix) => Some(format!("{prefix}{indent}")),
        Rule::Strip(prefix) => match indent.strip_prefix(prefix) {
            Some(rest) => Some(rest.to_owned()),
            None => prefix.starts_with(indent).then(String::new),
        },
        Rule::Units { from, to, shift } => {
            let mut rest = indent;
            let mut level = *shift;
            while let Some(shorter) = rest.strip_prefix(from) {
                rest = shorter;
                level += 1;
            }
            // What is left over is alignment and stays as it is.
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
