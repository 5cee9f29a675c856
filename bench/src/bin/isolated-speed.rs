//! Measures an isolated run of a workspace: opening it until its first command has ended, and the rest of the stat
//! walk. With `--land PATTERN` the command changes the files that match a shell pattern (`--files` says how many), and
//! two more times are measured: the walk that finds changes of the user, and the landing. Writes the milliseconds to a
//! file. The caller takes processor time and memory from the kernel's accounting.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use windlass_bench::flags::Flags;
use windlass_core::CancellationToken;
use windlass_core::clock::Timestamp;
use windlass_core::id::{RunId, SessionId};
use windlass_core::terms::Isolation;
use windlass_core::workspace::{
    Command, LandTo, Landing, Opening, ProcessEnd, Transaction, Watch, WorkspaceError,
    Workspaces as _,
};
use windlass_host::exec::child_env;
use windlass_host::sandbox::{Helper, Sandbox, SandboxPlan};
use windlass_host::workspace::Root;
use windlass_transaction::isolated::{KeptRuns, Transactions};

/// A timeout that is longer than anything here takes.
const TIMEOUT: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let flags = Flags::from_env(&[
        "--helper",
        "--workspace",
        "--home",
        "--land",
        "--files",
        "--file",
        "--strategy",
    ])?;
    let isolated = IsolatedBench {
        helper: flags.need::<String>("--helper")?.into(),
        workspace: Path::new(&flags.need::<String>("--workspace")?).canonicalize()?,
        home: Path::new(&flags.need::<String>("--home")?).canonicalize()?,
        strategy: flags
            .get("--strategy")?
            .unwrap_or_else(|| "overlay".to_owned()),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let land = flags.get::<String>("--land")?;
    let files = flags.get("--files")?.unwrap_or(1);
    let times = runtime.block_on(isolated.measure(land.as_deref(), files))?;
    drop(runtime);
    wait_for_helpers()?;
    std::fs::write(flags.need::<String>("--file")?, times.join(" "))
        .context("the figures cannot be written")
}

struct IsolatedBench {
    helper: PathBuf,
    workspace: PathBuf,
    home: PathBuf,
    /// The kind of tree that the run must work on.
    strategy: String,
}

impl IsolatedBench {
    /// Builds the transactions as the product does.
    fn transactions(&self) -> Result<Transactions> {
        let path = std::env::var_os("PATH").context("there is no PATH")?;
        let env = child_env(
            [
                ("PATH".into(), path),
                ("HOME".into(), self.home.clone().into_os_string()),
            ],
            &[],
        );
        let root = Arc::new(Root::open(&self.workspace)?);
        let data = self.home.join("data");
        let plan = SandboxPlan {
            root: self.workspace.clone(),
            home: Some(self.home.clone()),
            own: vec![data.clone()],
            data_dir: data.clone(),
            ..SandboxPlan::default()
        };
        let helper = Helper::new(self.helper.clone());
        let copy = windlass_transaction::copy_workspace;
        let sandbox = Some(Arc::new(Sandbox::new(plan, helper, env.clone(), copy)));
        let kept_runs = KeptRuns::new(data.join("transactions"));
        Ok(Transactions::new(
            root,
            env,
            sandbox,
            kept_runs,
            data.join("undo"),
        )?)
    }

    async fn measure(&self, land: Option<&str>, files: usize) -> Result<Vec<String>> {
        let began = Instant::now();
        let all = self.transactions()?;
        let (session, run) = (
            SessionId::fresh(Timestamp::from_millis(0), 1),
            RunId::nth(1),
        );
        let opening = Opening {
            session: &session,
            run: &run,
            isolation: Isolation::Isolated,
            kept: None,
        };
        let open = all.open(opening).await.map_err(to_anyhow)?;
        shell(&*open, "true").await?;
        let mut times = vec![since(began)];
        let strategy = open.terms().strategy;
        ensure!(
            strategy.word() == self.strategy,
            "the run works on a tree of the kind {strategy}, not {}",
            self.strategy
        );
        if let Some(pattern) = land {
            let line = format!("for f in {pattern}; do echo changed >> \"$f\"; done");
            shell(&*open, &line).await?;
        }
        let began = Instant::now();
        // Asking for the changes waits for the walk.
        let changes = open.changes().await.map_err(to_anyhow)?;
        times.push(since(began));
        if land.is_some() {
            let began = Instant::now();
            let moved = open.moved().await.map_err(to_anyhow)?;
            ensure!(
                moved.is_empty(),
                "nobody changed anything, and it saw {moved:?}"
            );
            times.push(since(began));
            let began = Instant::now();
            let landing = Landing {
                tree_hash: changes.tree_hash,
                to: LandTo::Tree,
            };
            let landed = open.land(&landing).await.map_err(to_anyhow)?;
            ensure!(
                landed.files.len() == files,
                "{} files landed, and not {files}",
                landed.files.len()
            );
            times.push(since(began));
        }
        open.discard().await.map_err(to_anyhow)?;
        Ok(times)
    }
}

async fn shell(open: &dyn Transaction, line: &str) -> Result<()> {
    let command = Command {
        line: line.to_owned(),
        workdir: String::new(),
        timeout: TIMEOUT,
        keep: 4_096,
        input: None,
        looks: false,
    };
    let watch = Watch {
        progress: &|_| {},
        cancel: CancellationToken::new(),
        artifacts: None,
    };
    let finished = open
        .processes()
        .run(command, watch)
        .await
        .map_err(|err| anyhow!(err.0))?;
    let ended_well = matches!(finished.end, ProcessEnd::Exited { code: 0 });
    ensure!(
        ended_well,
        "`{line}` failed in the copy: {}",
        finished.output
    );
    Ok(())
}

/// Waits until a thread of the sandbox has reaped the helpers, because only then does the kernel account their time.
fn wait_for_helpers() -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < TIMEOUT {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if matches!(waitid(WaitId::All, look), Err(Errno::CHILD)) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(anyhow!("a helper of the sandbox does not end"))
}

fn since(began: Instant) -> String {
    format!("{:.3}", began.elapsed().as_secs_f64() * 1e3)
}

fn to_anyhow(err: WorkspaceError) -> anyhow::Error {
    anyhow!(err.message)
}
