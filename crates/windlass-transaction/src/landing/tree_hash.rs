//! The hash of a tree after a change. Evidence is bound to it, and a landing compares it.

use windlass_core::image::{Image, Swap};

/// The hash of a base and the changes to it. The order of the paths is irrelevant, and so are the old images, which the
/// base determines. Every field is hashed with its length, so that different changes cannot have the same encoding.
#[must_use]
pub fn tree_hash(base_fingerprint: &str, swaps: &[Swap]) -> String {
    let mut sorted: Vec<&Swap> = swaps.iter().collect();
    sorted.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    let mut hasher = blake3::Hasher::new();
    let mut field = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    field(base_fingerprint.as_bytes());
    for swap in sorted {
        field(swap.path.as_bytes());
        match &swap.after {
            Image::Absent => field(b"absent"),
            Image::File { hash, mode, .. } => {
                field(b"file");
                field(&mode.to_le_bytes());
                field(hash.as_bytes());
            }
            Image::Link { target } => {
                field(b"link");
                field(target.as_bytes());
            }
        }
    }
    hasher.finalize().to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{file, link, swap};
    use super::*;

    fn change() -> Vec<Swap> {
        vec![
            swap("a", Image::Absent, file("1", 0o644)),
            swap("b", file("2", 0o644), Image::Absent),
            swap("c", Image::Absent, link("a")),
        ]
    }

    #[test]
    fn the_order_of_the_paths_and_the_old_images_are_irrelevant() {
        let mut other = change();
        other.reverse();
        other[0].before = file("something", 0o600);
        assert_eq!(tree_hash("base", &other), tree_hash("base", &change()));
    }

    #[track_caller]
    fn check_counts(make: impl FnOnce(&mut Vec<Swap>)) {
        let mut other = change();
        make(&mut other);
        assert_ne!(tree_hash("base", &other), tree_hash("base", &change()));
    }

    #[test]
    fn every_field_counts() {
        check_counts(|it| it[0].path = "aa".to_owned());
        check_counts(|it| it[0].after = file("1", 0o755));
        check_counts(|it| it[0].after = file("other", 0o644));
        check_counts(|it| it[0].after = Image::Absent);
        check_counts(|it| it[2].after = link("b"));
        check_counts(|it| it[2].after = file("a", 0o644));
        check_counts(|it| drop(it.pop()));
        assert_ne!(tree_hash("base", &change()), tree_hash("bas", &change()));
        // A letter that moves from one field to the next changes the hash.
        assert_ne!(
            tree_hash("x", &[swap("yz", Image::Absent, link("t"))]),
            tree_hash("xy", &[swap("z", Image::Absent, link("t"))])
        );
    }
}
