//! Runs cases, a few at a time, those that depend on time or on the whole machine alone, and makes a row of each.

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::case::{Case, load};
use crate::facts::Facts;
use crate::fixture::Fixture;
use crate::kind;
use crate::locked;
use crate::product::{self, Product};
use crate::report::{Report, Row, State};
use crate::{check, setup};

/// What to run, and with what.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The windlass that is driven.
    pub binary: PathBuf,
    /// Files of cases, and folders with such files.
    pub paths: Vec<PathBuf>,
    /// Only these categories; empty is all.
    pub categories: Vec<String>,
    /// Only these cases; empty is all.
    pub ids: Vec<String>,
    /// How many at once.
    pub jobs: usize,
    /// Where scratch directories are made; the system's place without it.
    pub scratch: Option<PathBuf>,
}

/// Runs what is asked for. Each row is told as soon as it is there.
pub fn run(options: &Options, tell: &(dyn Fn(&Row) + Sync)) -> Result<Report, String> {
    let product = Product::open(&options.binary)?;
    let mut rows: Vec<(usize, Row)> = Vec::new();
    let mut known: BTreeSet<String> = BTreeSet::new();
    let (mut together, mut alone) = (VecDeque::new(), VecDeque::new());
    for (at, line) in load(&options.paths)?.into_iter().enumerate() {
        if let Ok(case) = &line.case {
            known.insert(case.category.clone());
        }
        match line.case {
            Ok(case) if !wanted(options, &case) => {}
            Ok(case) if needs_quiet(&case) => alone.push_back((at, case)),
            Ok(case) => together.push_back((at, case)),
            Err(why) => rows.push((at, no_case(line.place, why))),
        }
    }
    if rows.is_empty() && together.is_empty() && alone.is_empty() {
        return Err(nothing_matched(options, &known));
    }
    rows.iter().for_each(|(_, row)| tell(row));
    let rows = Mutex::new(rows);
    for (jobs, queue) in [(options.jobs.clamp(1, 16), together), (1, alone)] {
        let queue = Mutex::new(queue);
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    loop {
                        let next = locked(&queue).pop_front();
                        let Some((at, case)) = next else { return };
                        let row = one(&product, &case, options);
                        tell(&row);
                        locked(&rows).push((at, row));
                    }
                });
            }
        });
    }
    let mut rows = rows.into_inner().unwrap_or_default();
    rows.sort_by_key(|(at, _)| *at);
    Ok(Report {
        rows: rows.into_iter().map(|(_, row)| row).collect(),
    })
}

/// Why there is nothing to run, and what could have been meant.
fn nothing_matched(options: &Options, known: &BTreeSet<String>) -> String {
    if known.is_empty() {
        return "there is no case in what was given".to_owned();
    }
    let asked: Vec<&str> = options
        .categories
        .iter()
        .chain(&options.ids)
        .map(String::as_str)
        .collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    format!(
        "no case matches {}; the categories are {}",
        asked.join(", "),
        known.join(", ")
    )
}

fn wanted(options: &Options, case: &Case) -> bool {
    let named = |list: &[String], name: &String| list.is_empty() || list.contains(name);
    named(&options.categories, &case.category) && named(&options.ids, &case.id)
}

/// Cases that others would disturb: short times, races, floods, and looks at the whole machine.
fn needs_quiet(case: &Case) -> bool {
    let checks = [
        "process_peak_at_most",
        "no_argv_contains",
        "no_predictable_temp_paths",
        "file_size_at_most",
    ];
    let short = case
        .wants("finishes_within_ms")
        .and_then(|post| post["ms"].as_u64())
        .is_some_and(|ms| ms <= 20_000);
    let races = case.setup.iter().any(|op| op["op"] == "race");
    let large = case.input.get("log_size").is_some();
    (short && case.kind() != "stream")
        || races
        || large
        || checks.iter().any(|check| case.wants(check).is_some())
}

/// A line that is no case is a case that failed.
fn no_case(place: String, why: String) -> Row {
    Row {
        id: place,
        category: "schema".to_owned(),
        title: "a line that is no case".to_owned(),
        benign: false,
        state: State::Failed,
        decision: String::new(),
        why: vec![why],
        ms: 0,
    }
}

/// One case, from the scratch directory to its row.
fn one(product: &Product, case: &Case, options: &Options) -> Row {
    let began = Instant::now();
    let mut row = Row {
        id: case.id.clone(),
        category: case.category.clone(),
        title: case.title.clone(),
        benign: case.benign(),
        state: State::Failed,
        decision: String::new(),
        why: Vec::new(),
        ms: 0,
    };
    if let Some(why) = cannot_run(product, case) {
        (row.state, row.why) = (State::NotRun, vec![why]);
        return row;
    }
    match kind::pending(product, case) {
        Some(Ok(surface)) => {
            (row.state, row.why) = (State::Pending, vec![format!("needs {surface}")])
        }
        Some(Err(why)) => row.why = vec![why],
        None => {
            if let Err(why) = drive(product, case, options, &mut row) {
                row.state = State::Failed;
                row.why.push(why);
            }
        }
    }
    row.ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    row
}

/// Why a case cannot be shown on this machine.
fn cannot_run(product: &Product, case: &Case) -> Option<String> {
    // A gate that errs must not be all that stands between a hostile line and this machine.
    if kind::brings_hostile_command(case) && !product.has_sandbox() {
        return Some(
            "needs a product with a kernel sandbox: a hostile command is given to no other"
                .to_owned(),
        );
    }
    if !case.platform.is_empty()
        && !case
            .platform
            .iter()
            .any(|system| system == std::env::consts::OS)
    {
        return Some(format!("is for {}", case.platform.join(", ")));
    }
    if case.setup.iter().any(|op| op["op"] == "small_disk") && !setup::may_mount() {
        return Some("needs the right to mount a file system".to_owned());
    }
    if let Some(missing) = case.needs.iter().find(|name| !product::has_program(name)) {
        return Some(format!("needs {missing}"));
    }
    let root = rustix::process::geteuid().is_root();
    match case.as_user.as_str() {
        "root only" if !root => Some("needs root".to_owned()),
        "not root" if root => Some("needs an ordinary user".to_owned()),
        _ => None,
    }
}

fn drive(product: &Product, case: &Case, options: &Options, row: &mut Row) -> Result<(), String> {
    let mut case = case.clone();
    product::translate_case(&mut case)?;
    let mut place = Fixture::new(options.scratch.as_deref())?;
    place.knows_sandbox = product.has_sandbox();
    if case.input.to_string().contains("@ALLOWED@") {
        place.start_allowed()?;
    }
    for op in &case.setup {
        setup::apply(&mut place, op)?;
    }
    kind::prepare(&mut place, &case)?;
    product.settings(&place, &case, "", &[])?;
    if case.trusted {
        place.trusted.push(place.workspace());
    }
    for folder in place.trusted.clone() {
        product.trust(&place, &folder)?;
    }
    place.remember(&case);
    let mut facts = Facts::new(product, &case, &place);
    kind::feed(&mut facts)?;
    // What was started may need a moment to show itself, or to end.
    std::thread::sleep(Duration::from_millis(100));
    let mut wrong = check::decision(&facts);
    let decision = facts
        .reached
        .iter()
        .find(|reached| case.accepted.contains(reached));
    row.decision = decision
        .or(facts.reached.first())
        .map_or("none", |decision| decision.word())
        .to_owned();
    for post in &case.post {
        if let Err(why) = check::check(&mut facts, post) {
            wrong.push(format!(
                "{}: {why}",
                post["check"].as_str().unwrap_or("a check without a name")
            ));
        }
    }
    if let Some(absent) = &facts.absent {
        row.decision = "absent".to_owned();
        row.why.push(absent.clone());
    }
    row.why.append(&mut facts.notes);
    row.state = if wrong.is_empty() {
        State::Passed
    } else {
        State::Failed
    };
    if !wrong.is_empty() {
        let said: String = facts.main.err.trim().chars().take(300).collect();
        wrong.push(format!(
            "exit {} after {} ms {said}",
            facts.main.code,
            facts.main.took.as_millis()
        ));
    }
    // What failed comes first.
    wrong.append(&mut row.why);
    row.why = wrong;
    Ok(())
}
