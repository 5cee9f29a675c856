//! Changes one credential in the credentials file. Comments and other credentials stay the same, and the file is
//! replaced atomically.

use std::path::Path;

use toml_edit::{DocumentMut, Item};
use windlass_core::workspace::FileErrorKind;

use super::{Credentials, MAX_FILE, Secret, SecretError};
use crate::workspace::{open_regular, read_whole, write_whole};

impl Credentials {
    /// Stores a credential in the file. A new file is readable by its owner only; a file that other users can read is
    /// refused, as [`Credentials::read`] does.
    pub fn store(path: &Path, name: &str, secret: &Secret) -> Result<(), SecretError> {
        let mut document = open(path)?;
        let fresh = toml_edit::Value::from(secret.expose());
        match document.get_mut(name).and_then(Item::as_value_mut) {
            // Keeps the comment behind the old value.
            Some(old) => {
                let decor = old.decor().clone();
                *old = fresh;
                *old.decor_mut() = decor;
            }
            None => {
                document.insert(name, Item::Value(fresh));
            }
        }
        if let Some(dir) = path.parent() {
            crate::private::create_dir(dir).map_err(|err| SecretError::File(err.message))?;
        }
        replace(path, &document)
    }

    /// Removes a credential from the file. Returns whether there was one.
    pub fn remove(path: &Path, name: &str) -> Result<bool, SecretError> {
        let mut document = open(path)?;
        let found = document.remove(name).is_some();
        if found {
            replace(path, &document)?;
        }
        Ok(found)
    }
}

/// Reads the file for a change. A missing file is empty.
fn open(path: &Path) -> Result<DocumentMut, SecretError> {
    // Reports a file that is readable by others or malformed, without quoting it.
    Credentials::read(path)?;
    let file = |err: windlass_core::workspace::FileError| SecretError::File(err.message);
    let (opened, stat) = match open_regular(path) {
        Ok(opened) => opened,
        Err(err) if err.kind == FileErrorKind::NotFound => return Ok(DocumentMut::new()),
        Err(err) => return Err(file(err)),
    };
    let bytes = read_whole(opened, stat.size, MAX_FILE, path).map_err(file)?;
    // The parser quotes the line with the error, which may be a key.
    let malformed = || SecretError::Malformed {
        path: path.to_owned(),
        line: 1,
        what: "this is not valid TOML".to_owned(),
    };
    let text = String::from_utf8(bytes).map_err(|_| malformed())?;
    text.parse().map_err(|_| malformed())
}

fn replace(path: &Path, document: &DocumentMut) -> Result<(), SecretError> {
    write_whole(path, document.to_string().as_bytes(), 0o600)
        .map_err(|err| SecretError::File(err.message))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_change_keeps_comments_and_other_credentials() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("below/credentials.toml");
        let secret = |text: &str| Secret::new(text);
        Credentials::store(&path, "anthropic", &secret("one")).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = "# mine\nanthropic = 'old' # of work\n\nopenai = 'two'\n";
        std::fs::write(&path, text).unwrap();
        Credentials::store(&path, "anthropic", &secret("a\"b")).unwrap();
        Credentials::store(&path, "llama.cpp", &secret("three")).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# mine\nanthropic = "), "{text}");
        assert!(text.contains("# of work\n\nopenai = 'two'\n"), "{text}");
        let read = Credentials::read(&path).unwrap();
        assert_eq!(read.get("anthropic").unwrap().expose(), "a\"b");
        assert_eq!(
            read.names().collect::<Vec<_>>(),
            ["anthropic", "llama.cpp", "openai"]
        );
        assert!(Credentials::remove(&path, "openai").unwrap());
        assert!(!Credentials::remove(&path, "openai").unwrap());
        let read = Credentials::read(&path).unwrap();
        assert_eq!(read.names().count(), 2);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_others_can_read_is_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials.toml");
        std::fs::write(&path, "a = 'hunter2'\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let err = Credentials::store(&path, "b", &Secret::new("x")).unwrap_err();
        assert!(err.to_string().contains("chmod 600"), "{err}");
        assert!(!Credentials::remove(&dir.path().join("none"), "b").unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a = 'hunter2'\n");
    }
}
