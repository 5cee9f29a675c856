//! Settings of a git repository that a command wrote: decides which of them cannot make git run a program or read other
//! settings. Pure functions.

/// One setting. Names are in lower case, except for the quoted part.
#[derive(Debug, Clone, PartialEq, Eq)]
struct GitSetting {
    section: String,
    sub: Option<String>,
    key: String,
    value: String,
}

impl GitSetting {
    fn name(&self) -> String {
        match &self.sub {
            Some(sub) => format!("{}.{sub}.{}", self.section, self.key),
            None => format!("{}.{}", self.section, self.key),
        }
    }

    /// Whether it neither executes a program nor names a file with further settings.
    fn is_plain(&self) -> bool {
        let value = self.value.as_str();
        match (self.section.as_str(), self.sub.is_some(), self.key.as_str()) {
            (
                "core",
                false,
                "repositoryformatversion"
                | "filemode"
                | "bare"
                | "logallrefupdates"
                | "ignorecase"
                | "precomposeunicode"
                | "symlinks",
            )
            | ("user", false, "name" | "email")
            | ("branch", true, "merge")
            | ("remote", true, "fetch")
            | ("init", false, "defaultbranch") => true,
            // Without it, git cannot read a repository with the other hash.
            ("extensions", false, "objectformat") => matches!(value, "sha1" | "sha256"),
            ("branch", true, "remote") | ("remote", true, "url") => is_plain_url(value),
            _ => false,
        }
    }
}

/// Whether git accesses an address by itself: no `ext::COMMAND`, no other helper, no option.
fn is_plain_url(url: &str) -> bool {
    let known = ["https", "http", "ssh", "git", "file"];
    let (scheme, rest) = url.split_once("://").unwrap_or(("file", url));
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    known.contains(&scheme)
        && !url.contains("::")
        && ![url, rest, host].iter().any(|part| part.starts_with('-'))
}

/// The settings of a new repository that may land: all of them, or a text without the refused ones, with their names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NewConfig {
    Plain,
    Stripped { text: String, dropped: Vec<String> },
}

/// `None` if the text cannot be parsed.
pub(super) fn new_config(text: &str) -> Option<NewConfig> {
    let (plain, others): (Vec<GitSetting>, Vec<GitSetting>) =
        parse(text)?.into_iter().partition(GitSetting::is_plain);
    if others.is_empty() {
        return Some(NewConfig::Plain);
    }
    let mut dropped: Vec<String> = others.iter().map(GitSetting::name).collect();
    dropped.dedup();
    Some(NewConfig::Stripped {
        text: plain.iter().map(encode).collect(),
        dropped,
    })
}

/// Whether two versions of a repository's settings differ only in harmless settings.
pub(super) fn differs_plainly(old: &str, new: &str) -> bool {
    let others = |text: &str| {
        let all = parse(text)?.into_iter();
        Some(all.filter(|one| !one.is_plain()).collect::<Vec<_>>())
    };
    matches!((others(old), others(new)), (Some(old), Some(new)) if old == new)
}

fn encode(one: &GitSetting) -> String {
    let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let sub = one.sub.as_ref();
    let sub = sub.map_or(String::new(), |sub| format!(" \"{}\"", escape(sub)));
    format!(
        "[{}{sub}]\n\t{} = \"{}\"\n",
        one.section,
        one.key,
        escape(&one.value)
    )
}

/// The settings in order; `None` for anything unusual, such as a value over several lines, because guessing would be
/// unsafe.
fn parse(text: &str) -> Option<Vec<GitSetting>> {
    let (mut settings, mut place) = (Vec::new(), None);
    for line in text.lines() {
        let mut line = line.trim();
        if let Some(rest) = line.strip_prefix('[') {
            let (head, after) = split_head(rest)?;
            place = Some(head);
            line = after.trim();
        }
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let (section, sub) = place.clone()?;
        let (key, value) = line.split_once('=').unwrap_or((line, "true"));
        let key = key.trim().to_ascii_lowercase();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if key.is_empty() || !key.chars().all(plain) {
            return None;
        }
        settings.push(GitSetting {
            section,
            sub,
            key,
            value: unquoted(value.trim())?,
        });
    }
    Some(settings)
}

type Head = (String, Option<String>);

/// Splits `core]` or `remote "origin"]` from the rest of the line.
fn split_head(text: &str) -> Option<(Head, &str)> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let end = text.find(|c: char| !plain(c))?;
    let (section, rest) = text.split_at(end);
    let section = section.to_ascii_lowercase();
    if section.is_empty() {
        return None;
    }
    if let Some(after) = rest.strip_prefix(']') {
        return Some(((section, None), after));
    }
    let rest = rest.trim_start().strip_prefix('"')?;
    let (mut sub, mut chars) = (String::new(), rest.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                let after = rest.get(at + 1..)?.strip_prefix(']')?;
                return Some(((section, Some(sub)), after));
            }
            '\\' => sub.push(chars.next()?.1),
            c => sub.push(c),
        }
    }
    None
}

/// The value as git reads it; `None` if it contains an escape other than those of a quote and a backslash.
fn unquoted(text: &str) -> Option<String> {
    let (mut value, mut quoted, mut chars) = (String::new(), false, text.chars());
    while let Some(c) = chars.next() {
        match c {
            '"' => quoted = !quoted,
            '#' | ';' if !quoted => break,
            '\\' => value.push(chars.next().filter(|c| matches!(c, '"' | '\\'))?),
            c if c.is_control() && c != '\t' => return None,
            c => value.push(c),
        }
    }
    (!quoted).then(|| value.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLONE: &str = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\
        \tlogallrefupdates = true\n[remote \"origin\"]\n\turl = https://host.example/a b.git\n\
        \tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n";

    #[test]
    fn the_settings_of_a_clone_are_plain() {
        assert_eq!(new_config(CLONE), Some(NewConfig::Plain));
        assert_eq!(new_config(""), Some(NewConfig::Plain));
    }

    #[track_caller]
    fn check_dropped(text: &str, name: &str) {
        let Some(NewConfig::Stripped { text, dropped }) = new_config(&format!("{CLONE}{text}"))
        else {
            panic!("{name} is plain")
        };
        assert_eq!(dropped, [name]);
        assert_eq!(parse(&text), parse(CLONE), "{text}");
    }

    #[test]
    fn settings_that_run_programs_or_lead_elsewhere_are_dropped_and_named() {
        check_dropped("[core]\n\tfsmonitor = touch x\n", "core.fsmonitor");
        check_dropped("[CORE] FSMonitor=\"touch x\"\n", "core.fsmonitor");
        check_dropped("[core]\nhooksPath = h ; comment\n", "core.hookspath");
        check_dropped("[alias]\n\tst = !sh\n", "alias.st");
        check_dropped("[include]\n\tpath = ../x\n", "include.path");
        check_dropped("[filter \"A\\\"b\"]\n\tclean = sh\n", "filter.A\"b.clean");
        check_dropped("[remote \"x\"]\n\turl = ext::sh -c x\n", "remote.x.url");
        check_dropped(
            "[remote \"x\"]\n\turl = ssh://-oProxyCommand=x/y\n",
            "remote.x.url",
        );
        check_dropped("[remote \"x\"]\n\turl = odd://host/y\n", "remote.x.url");
        check_dropped(
            "[remote \"x\"]\n\turl = ssh://u@-oProxyCommand=x/y\n",
            "remote.x.url",
        );
        check_dropped("[branch \"x\"]\n\tremote = ext::sh\n", "branch.x.remote");
        check_dropped("[core]\n\tsshcommand\n", "core.sshcommand");
    }

    #[test]
    fn a_text_that_is_unusual_is_not_guessed() {
        for text in [
            "[core]\n\tfilemode = a\\\n fsmonitor = x\n",
            "fsmonitor = x\n",
            "[core\n",
            "[core.sub]\n\tx = y\n",
            "[core]\n\tfilemode = \"a\n",
        ] {
            assert_eq!(new_config(text), None, "{text}");
        }
    }

    #[test]
    fn plain_settings_may_change_and_others_stay() {
        let own = format!("{CLONE}[core]\n\thooksPath = mine\n");
        let more = "[user]\n\tname = A B\n[remote \"up\"]\n\turl = git@host.example:a/b\n\tfetch = +refs/heads/*:refs/remotes/up/*\n";
        assert!(differs_plainly(&own, &format!("{own}{more}")));
        assert!(differs_plainly(&format!("{own}{more}"), &own));
        assert!(!differs_plainly(&own, CLONE), "hooks of the user stay");
        assert!(!differs_plainly(CLONE, &own));
        assert!(!differs_plainly(
            CLONE,
            &format!("{CLONE}[alias]\n\tx = !y\n")
        ));
    }
}
