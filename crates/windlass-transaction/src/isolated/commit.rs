//! Commits landed files. The settings of the repository may name filters and signing programs that an agent put there,
//! so the commit uses only the settings of the user and the machine.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use windlass_core::image::Swap;

use super::user_git::UserGit;
use windlass_core::path_text::from_text;
use windlass_host::private::remove_tree;

/// Repository settings that affect the stored bytes and execute nothing.
const CARRIED: &str = r"^core\.(autocrlf|eol|filemode|symlinks|ignorecase|precomposeunicode)$";

/// Settings of filters, which are programs that git runs on files.
const FILTERS: &str = r"^filter\..*\.(clean|smudge|process|required)$";

/// Commits exactly the landed paths on top of HEAD. Changes that the user has staged stay staged.
pub(super) async fn commit(
    git: &UserGit,
    scratch: &Path,
    swaps: &[Swap],
    message: &str,
) -> Result<String, String> {
    let dir = scratch.join("commit-git");
    let own = without_repository_settings(git, &dir).await?;
    let made = make(git, &own, swaps, message).await;
    let _ = remove_tree(&dir);
    made
}

async fn make(
    git: &UserGit,
    own: &UserGit,
    swaps: &[Swap],
    message: &str,
) -> Result<String, String> {
    let head = git
        .line(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])
        .await
        .ok();
    if let Some(head) = &head {
        own.ask(&["read-tree", head], b"").await?;
    }
    let mut paths = Vec::new();
    for swap in swaps {
        paths.extend_from_slice(&from_text(&swap.path));
        paths.push(0);
    }
    let update = ["update-index", "--add", "--remove", "-z", "--stdin"];
    own.ask(&update, &paths).await?;
    let tree = own.line(&["write-tree", "--missing-ok"]).await?;
    let mut args = vec!["commit-tree".to_owned(), tree];
    args.extend(head.iter().flat_map(|head| ["-p".to_owned(), head.clone()]));
    let sign = ["config", "--type=bool", "commit.gpgSign"];
    if own.line(&sign).await.is_ok_and(|sign| sign == "true") {
        args.push("-S".to_owned());
    }
    let made = own.ask(&args, message.as_bytes()).await?;
    let made = String::from_utf8_lossy(&made).trim().to_owned();
    let before = head.unwrap_or_else(|| "0".repeat(made.len()));
    let reason = "windlass: landed";
    git.ask(&["update-ref", "-m", reason, "HEAD", &made, &before], b"")
        .await?;
    follow(git, &made).await?;
    Ok(made)
}

/// Updates the user's index for the committed paths, so that they do not appear as changed. No file is hashed again.
async fn follow(git: &UserGit, made: &str) -> Result<(), String> {
    let args = [
        "diff-tree",
        "-r",
        "-z",
        "--no-renames",
        "--no-commit-id",
        "--root",
        made,
    ];
    let changed = git.ask(&args, b"").await?;
    let mut fields = changed.split(|byte| *byte == 0);
    let mut entries = Vec::new();
    // `:100644 100644 OLD NEW M`, then the path.
    while let (Some(about), Some(path)) = (fields.next(), fields.next()) {
        let about = String::from_utf8_lossy(about);
        let about: Vec<&str> = about.split(' ').collect();
        let (Some(mode), Some(object)) = (about.get(1), about.get(3)) else {
            return Err("git printed the commit in an unknown format".to_owned());
        };
        let mode = mode.trim_start_matches('0');
        let mode = if mode.is_empty() { "0" } else { mode };
        entries.extend_from_slice(format!("{mode} {object}\t").as_bytes());
        entries.extend_from_slice(path);
        entries.push(0);
    }
    // For files as new as the index, git may compare contents, and would run filters for that.
    let git = without_filters(git).await?;
    git.ask(&["update-index", "-z", "--index-info"], &entries)
        .await
        .map(drop)
}

/// Git with all filters disabled, of any scope.
async fn without_filters(git: &UserGit) -> Result<UserGit, String> {
    let args = ["config", "-z", "--includes", "--name-only", "--get-regexp"];
    let listed = git
        .ask(&[&args[..], &[FILTERS]].concat(), b"")
        .await
        .unwrap_or_default();
    let keys: Vec<&OsStr> = listed
        .split(|byte| *byte == 0)
        .filter(|key| !key.is_empty())
        .map(<OsStr as OsStrExt>::from_bytes)
        .collect();
    let mut env = vec![("GIT_CONFIG_COUNT".to_owned(), keys.len().to_string().into())];
    let last = keys.last().map(|key| (*key).to_owned());
    for (at, key) in keys.into_iter().enumerate() {
        env.push((format!("GIT_CONFIG_KEY_{at}"), key.to_owned()));
        env.push((format!("GIT_CONFIG_VALUE_{at}"), OsString::new()));
    }
    let git = git.with_env(
        env.iter()
            .map(|(name, value)| (name.as_str(), value.as_os_str())),
    );
    // Git before 2.31 ignores these variables and would run the filters.
    if let Some(last) = last
        && git
            .line(&[OsStr::new("config"), OsStr::new("--get"), &last])
            .await
            .is_ok_and(|value| !value.is_empty())
    {
        return Err("this git cannot disable filters; update it to 2.31 or newer".to_owned());
    }
    Ok(git)
}

/// Git with a git directory of our own and the objects of the repository.
async fn without_repository_settings(git: &UserGit, dir: &Path) -> Result<UserGit, String> {
    let objects = git.line(&["rev-parse", "--git-path", "objects"]).await?;
    let objects = git.root().join(objects);
    let format = git.line(&["rev-parse", "--show-object-format"]).await?;
    write_dir(git, dir, &format)
        .await
        .map_err(|err| format!("{}: {err}", dir.display()))?;
    let index = dir.join("index");
    let mut env = vec![
        ("GIT_DIR", dir.as_os_str().to_owned()),
        ("GIT_WORK_TREE", git.root().as_os_str().to_owned()),
        ("GIT_OBJECT_DIRECTORY", objects.into_os_string()),
        ("GIT_INDEX_FILE", index.into_os_string()),
    ];
    // The repository may configure its own author.
    for (of, name, email) in [
        ("GIT_AUTHOR_IDENT", "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL"),
        (
            "GIT_COMMITTER_IDENT",
            "GIT_COMMITTER_NAME",
            "GIT_COMMITTER_EMAIL",
        ),
    ] {
        let identity = git.line(&["var", of]).await?;
        let split = identity
            .rsplit_once("> ")
            .and_then(|(who, _)| who.split_once(" <"));
        let (own_name, own_email) = split.ok_or("git does not report an author")?;
        env.extend([(name, own_name.into()), (email, own_email.into())]);
    }
    Ok(git.with_env(env.iter().map(|(name, value)| (*name, OsStr::new(value)))))
}

async fn write_dir(git: &UserGit, dir: &Path, format: &str) -> std::io::Result<()> {
    let mut config = match format {
        "sha256" => {
            "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectFormat = sha256\n"
        }
        _ => "[core]\n\trepositoryformatversion = 0\n",
    }
    .to_owned();
    let carried = git
        .ask(&["config", "-z", "--get-regexp", CARRIED], b"")
        .await;
    for one in String::from_utf8_lossy(&carried.unwrap_or_default()).split('\0') {
        let plain = |text: &str| text.chars().all(char::is_alphanumeric);
        if let Some((key, value)) = one.split_once('\n').filter(|(_, value)| plain(value)) {
            let key = key.rsplit('.').next().unwrap_or(key);
            config.push_str(&format!("[core]\n\t{key} = {value}\n"));
        }
    }
    let _ = remove_tree(dir);
    let made: [PathBuf; 2] = [dir.join("objects"), dir.join("refs")];
    made.iter().try_for_each(std::fs::create_dir_all)?;
    std::fs::write(dir.join("HEAD"), "ref: refs/heads/none\n")?;
    std::fs::write(dir.join("config"), config)
}
