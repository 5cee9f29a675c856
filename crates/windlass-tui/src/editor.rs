//! Editing the text of the composer in the user's editor.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;

use tokio::process::Command;

/// The largest text that is read back, in bytes.
const MAX_TEXT: u64 = 8 << 20;

/// Opens `$VISUAL` or `$EDITOR` on a text and returns the edited one. The terminal must be in its normal mode.
pub(crate) async fn edit(text: &str, environment: &[(String, String)]) -> Result<String, String> {
    let value = |name: &str| {
        let found = environment.iter().find(|(known, _)| known == name);
        found
            .map(|(_, value)| value.trim())
            .filter(|value| !value.is_empty())
    };
    let editor = value("VISUAL").or_else(|| value("EDITOR")).unwrap_or("vi");
    let dir = std::env::temp_dir();
    let path = dir.join(format!("windlass-prompt-{}.md", std::process::id()));
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    if let Err(err) = written {
        return Err(format!(
            "the text cannot be written to {}: {err}",
            path.display()
        ));
    }
    // A shell splits the setting, which may have options: `code --wait`.
    let status = Command::new("/bin/sh")
        .args(["-c", &format!("{editor} \"$1\""), "sh"])
        .arg(&path)
        .status()
        .await;
    let size = std::fs::metadata(&path).map_or(0, |meta| meta.len());
    let edited = std::fs::read_to_string(&path);
    let _ = std::fs::remove_file(&path);
    match status {
        Err(err) => Err(format!(
            "the editor `{editor}` does not start: {err}; set EDITOR"
        )),
        Ok(status) if !status.success() => Err(format!(
            "the editor `{editor}` failed ({status}); the text is unchanged"
        )),
        Ok(_) if size > MAX_TEXT => Err("the text is longer than 8 MB; it is unchanged".to_owned()),
        Ok(_) => edited.map_err(|err| format!("the edited text cannot be read: {err}")),
    }
}
