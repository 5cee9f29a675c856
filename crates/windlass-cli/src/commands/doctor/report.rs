//! The report of `doctor` as text: a verdict in one sentence, then the findings in groups.

use windlass::doctor::{DoctorFinding, DoctorReport, FindingGroup};
use windlass_text::sanitize::one_line;

/// Renders the verdict, then the findings of each group; without `all`, minor findings are only counted.
pub(super) fn text(report: &DoctorReport, all: bool) -> String {
    let sentence = match &report.todo {
        None => report.summary.clone(),
        Some(todo) => format!("{}; {todo}", report.summary),
    };
    let mut text = format!("{}\n", one_line(&sentence));
    for group in FindingGroup::ALL {
        let (shown, hidden): (Vec<_>, Vec<_>) = report
            .findings
            .iter()
            .filter(|finding| finding.group == group)
            .partition(|finding| all || !finding.minor);
        if shown.is_empty() && hidden.is_empty() {
            continue;
        }
        text.push_str(&format!("\n{}\n", group.word()));
        text.extend(shown.into_iter().map(line));
        if !hidden.is_empty() {
            text.push_str(&format!("  {}\n", omitted(group, hidden.len())));
        }
    }
    text
}

fn line(finding: &DoctorFinding) -> String {
    let mark = match (finding.ok, finding.needed) {
        (true, _) => "ok",
        (false, true) => "BROKEN",
        (false, false) => "missing",
    };
    let more: String = finding
        .lines
        .iter()
        .skip(1)
        .map(|line| format!("\n{:32}{}", "", one_line(line)))
        .collect();
    format!(
        "  {mark:<8} {:<20} {}{more}\n",
        finding.what,
        one_line(finding.lines.first().map_or("", String::as_str))
    )
}

/// Counts the findings that the short list omits.
fn omitted(group: FindingGroup, count: usize) -> String {
    let (one, many) = match group {
        FindingGroup::Models => ("vendor is not set up", "vendors are not set up"),
        FindingGroup::Agents => ("agent is not installed", "agents are not installed"),
        FindingGroup::Machine | FindingGroup::Sandbox => ("more finding", "more findings"),
    };
    format!(
        "{count} {} (see `windlass doctor --all`)",
        if count == 1 { one } else { many }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_list_counts_minor_findings_and_the_long_one_shows_them() {
        let finding = |name: &str, ok: bool, detail: &str| DoctorFinding {
            group: FindingGroup::Models,
            what: name.to_owned(),
            ok,
            needed: false,
            detail: detail.to_owned(),
            lines: vec![detail.to_owned()],
            minor: !ok,
        };
        let report = DoctorReport {
            version: "1",
            ready: true,
            summary: "ready: yes".to_owned(),
            todo: None,
            sandbox: None,
            findings: vec![
                finding("anthropic", true, "a key is set"),
                finding("groq", false, "no key"),
                finding("xai", false, "no key"),
            ],
            runtimes: Vec::new(),
        };
        let short = text(&report, false);
        assert_eq!(
            short,
            "ready: yes\n\nmodels\n  ok       anthropic            a key is set\n  \
             2 vendors are not set up (see `windlass doctor --all`)\n"
        );
        let long = text(&report, true);
        assert!(
            long.contains("missing  groq") && !long.contains("--all"),
            "{long}"
        );
    }
}
