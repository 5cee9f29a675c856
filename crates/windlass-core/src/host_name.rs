//! Host names as people read them. Letters of other alphabets can make one name look like another.

/// Returns the host name. A name that is not plain ASCII gets a note, because it may look like the name of another
/// host.
///
/// ```
/// use windlass_core::host_name::in_words;
/// assert_eq!(in_words("example.com"), "example.com");
/// assert!(in_words("ex\u{430}mple.com").contains("U+0430"));
/// ```
#[must_use]
pub fn in_words(host: &str) -> String {
    let mut foreign: Vec<String> = Vec::new();
    for c in host.chars().filter(|c| !c.is_ascii()) {
        let code = format!("U+{:04X}", u32::from(c));
        if !foreign.contains(&code) && foreign.len() < MAX_NAMED {
            foreign.push(code);
        }
    }
    if !foreign.is_empty() {
        return format!(
            "{host} (not plain letters: {}; it may look like another host)",
            foreign.join(" ")
        );
    }
    let encoded = |label: &str| {
        label
            .get(..4)
            .is_some_and(|start| start.eq_ignore_ascii_case("xn--"))
    };
    if host.split('.').any(encoded) {
        return format!("{host} (an encoded name; it may look like another host)");
    }
    host.to_owned()
}

/// Maximum number of code points that the note lists.
const MAX_NAMED: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_may_look_like_others_are_marked() {
        for plain in [
            "example.com",
            "localhost",
            "127.0.0.1",
            "::1",
            "a-xn--b.example",
            "",
        ] {
            assert_eq!(in_words(plain), plain);
        }
        for marked in [
            "\u{430}pple.com",
            "xn--pple-43d.com",
            "www.XN--pple-43d.com",
            "exam\u{200b}ple.com",
        ] {
            assert!(
                in_words(marked).contains("may look like another host"),
                "{marked}"
            );
        }
    }
}
