//! Holds a proposal to the rules and to the files, without writing anything: paths after unquoting, what was declared
//! against what the patch does, modes, links and binary files, and a dry run of the whole.

use windlass_core::gate::is_credential;
use windlass_core::workspace::{FileErrorKind, Files};
use windlass_edit::patch::{PatchBody, FilePatch, Found, FileOp, Patch, plain_path};

use super::proposal::{Operation, Proposal, ProposedFile};

/// The longest file that is patched.
const MAX_FILE: u64 = 16 << 20;

/// A proposal that would work.
pub(super) struct Checked {
    /// All of it as one patch.
    pub(super) patch: String,
    /// The files it names, in their plain form.
    pub(super) files: Vec<String>,
}

/// What the proposal amounts to, or everything that is wrong with it.
pub(super) fn check(files: &dyn Files, proposal: &Proposal) -> Result<Checked, Vec<String>> {
    let (mut sections, mut paths, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for file in &proposal.files {
        match read(file) {
            Ok((path, found)) if !paths.contains(&path) => {
                paths.push(path);
                sections.extend(found);
            }
            Ok((path, _)) => problems.push(format!(
                "{path} is in the proposal twice; give it once, with one patch"
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
        Ok(bytes) => Found::File(bytes),
        Err(err) if err.kind == FileErrorKind::NotFound => Found::Absent,
        Err(err) => Found::Unusable(err.message),
    };
    let plan = patch.plan(look).map_err(|err| vec![err.to_string()])?;
    let text = plan.to_diff();
    // What is written down is what was found to be meant, or it is not used.
    let again = Patch::parse(&text).and_then(|patch| patch.plan(look));
    if again.is_ok_and(|again| again.changes == plan.changes) {
        return Ok(Checked {
            patch: text,
            files: patch.paths().into_iter().map(str::to_owned).collect(),
        });
    }
    Err(vec!["the patch cannot be written down as a diff (a lone carriage return ends its lines?); change the file by other means".to_owned()])
}

/// One file of a proposal: its plain path and what its patch says, found to agree.
fn read(file: &ProposedFile) -> Result<(String, Vec<FilePatch>), String> {
    let path = allowed(&file.path)?;
    let to = match (
        file.operation,
        file.to.as_deref().filter(|to| !to.is_empty()),
    ) {
        (Operation::Move, Some(to)) => Some(allowed(to)?),
        (Operation::Move, None) => {
            return Err(format!(
                "{path} is to be moved, and `to` does not say where"
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

/// Whether a section of a patch does what was declared. A move may leave its new name to the declaration.
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
        (Operation::Create, FileOp::Create { .. }) | (Operation::Delete, FileOp::Delete { .. }) => true,
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

/// The plain form of a path that a proposal may touch.
fn allowed(path: &str) -> Result<String, String> {
    let path = plain_path(path).map_err(|err| err.to_string())?;
    if path
        .split('/')
        .any(|part| part.eq_ignore_ascii_case(".git"))
    {
        return Err(format!(
            "{path} is inside git's own folder, which a proposal may not touch"
        ));
    }
    if is_credential(&path) {
        return Err(format!(
            "{path} names credentials, which a proposal may not touch"
        ));
    }
    Ok(path)
}
