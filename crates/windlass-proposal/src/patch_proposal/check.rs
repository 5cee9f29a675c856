//! Checks a proposal without writing anything: its paths after unquoting, the declared operations against the patches,
//! file modes, symlinks and binary files. Then applies the whole patch in memory.

use windlass_core::gate::is_credential;
use windlass_core::workspace::{FileErrorKind, Files};
use windlass_edit::patch::{FileOp, FilePatch, Patch, PatchBody, PatchedPath, plain_path};

use super::proposal::{Operation, PatchProposal, ProposedFile};

/// A larger file, in bytes, is not patched.
const MAX_FILE: u64 = 16 << 20;

/// A proposal that passed all checks.
pub(super) struct CheckedProposal {
    /// The whole proposal as one unified diff.
    pub(super) patch: String,
    /// The normalised paths of its files.
    pub(super) files: Vec<String>,
}

/// Checks a proposal and merges its patches into one. The error lists all problems.
pub(super) fn check(
    files: &dyn Files,
    proposal: &PatchProposal,
) -> Result<CheckedProposal, Vec<String>> {
    let (mut sections, mut paths, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for file in &proposal.files {
        match read(file) {
            Ok((path, found)) if !paths.contains(&path) => {
                paths.push(path);
                sections.extend(found);
            }
            Ok((path, _)) => problems.push(format!(
                "{path} is in the proposal twice; list it once, with one patch"
            )),
            Err(problem) => problems.push(problem),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let patch = Patch {
        files: sections,
        notes: Vec::new(),
    };
    let look = |path: &str| match files.read(path, MAX_FILE) {
        Ok(bytes) => PatchedPath::File(bytes),
        Err(err) if err.kind == FileErrorKind::NotFound => PatchedPath::Absent,
        Err(err) => PatchedPath::Unusable(err.message),
    };
    let plan = patch.plan(look).map_err(|err| vec![err.to_string()])?;
    let text = plan.to_diff();
    // The written diff is used only if it parses back to exactly the same changes.
    let again = Patch::parse(&text).and_then(|patch| patch.plan(look));
    if again.is_ok_and(|again| again.changes == plan.changes) {
        return Ok(CheckedProposal {
            patch: text,
            files: patch.paths().into_iter().map(str::to_owned).collect(),
        });
    }
    Err(vec!["the patch cannot be expressed as a diff (does a lone carriage return end its lines?); change the file by other means".to_owned()])
}

/// Parses the patch of one file and checks that it does what was declared. Returns the normalised path too.
fn read(file: &ProposedFile) -> Result<(String, Vec<FilePatch>), String> {
    let path = allowed(&file.path)?;
    let to = match (
        file.operation,
        file.to.as_deref().filter(|to| !to.is_empty()),
    ) {
        (Operation::Move, Some(to)) => Some(allowed(to)?),
        (Operation::Move, None) => {
            return Err(format!(
                "{path} is to be moved, but `to` does not say where"
            ));
        }
        (_, Some(to)) if to != file.path => {
            return Err(format!("{path} has `to`, but its operation is not `move`"));
        }
        _ => None,
    };
    if file.patch.trim().is_empty() {
        let op = match file.operation {
            Operation::Delete => FileOp::Delete { path: path.clone() },
            Operation::Move => FileOp::Update {
                path: path.clone(),
                move_to: to,
            },
            Operation::Create | Operation::Update => return Err(format!("{path} has no patch")),
        };
        return Ok((
            path,
            vec![FilePatch {
                op,
                body: PatchBody::Hunks(Vec::new()),
            }],
        ));
    }
    let patch =
        Patch::parse_about(&file.patch, &[&path]).map_err(|err| format!("{path}: {err}"))?;
    for named in patch.paths() {
        allowed(named)?;
        if named != path && Some(named) != to.as_deref() {
            return Err(format!(
                "the patch declared for {path} is about {named}; each entry has the patch of its own file and no other"
            ));
        }
    }
    let mut sections = patch.files;
    for section in &mut sections {
        agree(&path, file.operation, to.as_deref(), &mut section.op)?;
    }
    Ok((path, sections))
}

/// Checks that a section of a patch does what was declared. The patch of a move may omit the new name.
fn agree(path: &str, declared: Operation, to: Option<&str>, op: &mut FileOp) -> Result<(), String> {
    let does = match op {
        FileOp::Create { .. } | FileOp::Write { .. } => "creates it",
        FileOp::Delete { .. } => "deletes it",
        FileOp::Update {
            move_to: Some(_), ..
        } => "moves it",
        FileOp::Update { .. } => "updates it",
    };
    let agrees = match (declared, &mut *op) {
        (Operation::Create, FileOp::Create { .. }) | (Operation::Delete, FileOp::Delete { .. }) => {
            true
        }
        (Operation::Update, FileOp::Update { move_to, .. }) => move_to.is_none(),
        (
            Operation::Move,
            FileOp::Update {
                path: from,
                move_to,
            },
        ) => {
            let named = move_to.get_or_insert_with(|| to.unwrap_or_default().to_owned());
            from == path && Some(named.as_str()) == to
        }
        _ => false,
    };
    if agrees {
        Ok(())
    } else {
        Err(format!(
            "{path} was declared as {declared:?}, but its patch {does}"
        ))
    }
}

/// Normalises a path and checks that a proposal may change it.
fn allowed(path: &str) -> Result<String, String> {
    let path = plain_path(path).map_err(|err| err.to_string())?;
    if path
        .split('/')
        .any(|part| part.eq_ignore_ascii_case(".git"))
    {
        return Err(format!(
            "{path} is inside the `.git` directory, which a proposal may not change"
        ));
    }
    if is_credential(&path) {
        return Err(format!(
            "{path} names credentials, which a proposal may not change"
        ));
    }
    Ok(path)
}
