//! Finds errors that the HTML grammar accepts: unclosed elements, and end tags without a start tag. Browsers display such
//! pages, but not as intended.

use tree_sitter::Node;

use super::grammar::next;
use super::position::Flaw;

/// Elements that have no end tag, or whose end tag is optional.
const MAY_STAY_OPEN: &[&str] = &[
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "track", "wbr", "html", "head", "body", "li", "dt", "dd", "p", "rt", "rp", "optgroup",
    "option", "colgroup", "caption", "thead", "tbody", "tfoot", "tr", "td", "th", "keygen",
    "frame", "basefont", "bgsound", "command", "image", "isindex", "nextid", "!doctype",
];

/// Reports elements without an end tag and end tags without a start tag.
pub(super) fn unclosed(text: &str, root: Node<'_>, flaws: &mut Vec<Flaw>) {
    let mut cursor = root.walk();
    loop {
        let node = cursor.node();
        match node.kind() {
            "element" | "script_element" | "style_element" => {
                flaws.extend(open_element(text, node))
            }
            "erroneous_end_tag" => {
                let name = text.get(node.byte_range()).unwrap_or_default();
                flaws.push(Flaw::at(
                    text,
                    node.start_byte(),
                    format!("`{name}` has no start tag"),
                ));
            }
            _ => {}
        }
        if !next(&mut cursor, true) {
            return;
        }
    }
}

fn open_element(text: &str, element: Node<'_>) -> Option<Flaw> {
    let start = element
        .child(0)
        .filter(|child| child.kind() == "start_tag")?;
    let last = element.child(element.child_count().checked_sub(1)?)?;
    if last.kind() == "end_tag" && !last.is_missing() && !last.byte_range().is_empty() {
        return None;
    }
    let name = start.child(1).filter(|child| child.kind() == "tag_name")?;
    let name = text.get(name.byte_range())?.to_ascii_lowercase();
    if MAY_STAY_OPEN.contains(&name.as_str()) {
        return None;
    }
    Some(Flaw::at(
        text,
        start.start_byte(),
        format!("`<{name}>` is never closed by `</{name}>`"),
    ))
}
