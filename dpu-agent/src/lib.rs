//! The agent of one DPU: gather, validate, plan, act, write status.
//!
//! | file | what |
//! |---|---|
//! | `session.rs` | registers the Dpu, waits for approval, gets and renews this DPU's own identity |
//! | `watch.rs` | the attachments of this DPU's namespace and its Dpu, as the API server tells of them |
//! | `heartbeat.rs`, `beats.rs` | the Lease, each second, whatever else happens; whether the API server forgot one |
//! | `observed.rs` | gather: what is exposed, connected, plugged and recorded |
//! | `reconcile.rs` | the loop around `planner::agent::plan`, which validates and decides |
//! | `act.rs`, `claim.rs`, `finish.rs` | one step each; `claim.rs` is *ActivatedFromQuorum* of docs/design/fencing.md, `finish.rs` the end of *AgentDetaches* |
//! | `record.rs`, `seed.rs`, `eraser.rs`, `hold_disk.rs` | files that a reboot forgets, below `--run-dir` |
//! | `import/` | filling a volume from an URL: a task that is started and then observed |
//! | `guest.rs` | a task that looks whether the guests behind our NICs answer |
//! | `placement.rs` | what it is told of the server around it |
//! | `attachments.rs` | what both kinds of attachments have in common |
//! | `status.rs`, `dpu_status.rs` | what the user is told |
//! | `serve.rs` | the same, to programs on this DPU |
//! | `interfaces.rs` | the NICs of an ordinary node's pods, to the CNI plugin |
//! | `worker.rs` | the same on a worker that is a machine: of functions that its DPU presents |
//! | `metadata.rs` | a task by which guests are told about themselves |
//! | `metrics/` | numbers for Prometheus |
//!
//! The agent is never in the data path. It ends without touching anything, and when it comes back it adopts what is
//! there by (UID, epoch). Without the API server it keeps what the record names; see `planner::agent`.
//!
//! One thread: each wait is a task's, and file systems that may hang are the connectors' to guard.

pub mod act;
pub mod args;
mod attachments;
mod beats;
mod boot_disk;
mod claim;
pub mod cluster;
mod dpu_status;
pub mod eraser;
mod finish;
mod guest;
mod heartbeat;
pub mod hold_disk;
mod host_privilege;
pub mod import;
mod interfaces;
mod metadata;
mod metrics;
mod observed;
mod placement;
pub mod reconcile;
pub mod record;
pub mod seed;
mod serve;
pub mod session;
mod status;
mod watch;
pub mod wire_up;
pub mod worker;

use act::Actor;
use anyhow::Context;
use args::Args;
use reconcile::Reconciler;
use runtime::clock;
use session::Access;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The outside of this DPU, as `wire_up.rs` or a test puts it together.
#[derive(Clone)]
pub struct Ports {
    pub emulation: Arc<dyn ports::Emulation>,
    pub connectors: Vec<Arc<dyn ports::VolumeConnector>>,
    pub switch: Arc<dyn ports::Switch>,
    /// On an ordinary node, where `emulation` is of nothing else: devices for its pods.
    pub pods: Option<Arc<dyn ports::PodDevices>>,
    /// What answers guests at the metadata address; an ordinary node has none.
    pub metadata: Option<Arc<dyn ports::Metadata>>,
}

impl Ports {
    pub fn connector(&self, driver: &str) -> Option<&Arc<dyn ports::VolumeConnector>> {
        self.connectors.iter().find(|connector| connector.driver() == driver)
    }
}

/// Runs until `shutdown`; ends without hiding anything.
pub async fn run(args: &Args, ports: Ports, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
    let access = Access::from_args(args).await?;
    run_with(args, access, ports, shutdown).await
}

fn boot_id(args: &Args) -> anyhow::Result<String> {
    let boot_id = std::fs::read_to_string(&args.boot_id_file)
        .with_context(|| format!("cannot read the boot id from {}", args.boot_id_file.display()))?;
    let boot_id = boot_id.trim().to_owned();
    anyhow::ensure!(!boot_id.is_empty(), "{} is empty: it has to hold the boot id", args.boot_id_file.display());
    Ok(boot_id)
}

/// How long the database of the switch may take to answer.
const SANITIZED: Duration = Duration::from_secs(30);

/// What `--sanitize` does.
pub async fn sanitize(args: &Args, ports: &Ports) -> anyhow::Result<()> {
    let boot_id = boot_id(args)?;
    let record = record::Record::open(&args.run_dir, &boot_id).context("opening the record")?;
    let known: Vec<_> = record.all().into_values().map(|entry| entry.id).collect();
    let deadline = tokio::time::Instant::now() + SANITIZED;
    loop {
        match ports.switch.begin_boot(&boot_id, &known).await {
            Err(error) if tokio::time::Instant::now() < deadline => {
                tracing::debug!(%error, "asking again");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            result => return result.map(drop).context("removing what an earlier boot left in the switch"),
        }
    }
}

/// [`run`] against an API server that is reached in another way.
pub async fn run_with(
    args: &Args,
    access: Access,
    ports: Ports,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let boot_id = boot_id(args)?;
    std::fs::create_dir_all(&args.run_dir).with_context(|| format!("cannot make {}", args.run_dir.display()))?;

    let wake = Arc::new(Notify::new());
    let actor = Actor::open(
        &args.node_name,
        &boot_id,
        args.bounds(),
        (&args.run_dir, args.erasers(), args.hold_disks()),
        ports,
        wake.clone(),
    )?;
    tracing::info!(dpu = args.node_name, boot_id, adopted = actor.record.all().len(), "starting");

    let (cluster, joined) = tokio::sync::watch::channel(None);
    let desired = Arc::new(watch::Desired::new(wake.clone()));
    let view = Arc::new(serve::View::new(&args.node_name, &boot_id));
    let metrics = Arc::new(metrics::Metrics::default());
    let beats = Arc::new(beats::Beats::open(&args.run_dir, &boot_id));
    beats.boot_disk.adopt(actor.record.all().into_values().map(|entry| entry.id));
    let session = session::run(args, access, &cluster, desired.clone(), (&beats, &metrics));
    let devices = actor.ports.pods.clone();
    let pods = devices.map(|devices| Arc::new(interfaces::Pods::new(&args.node_name, devices, wake.clone())));
    let server = serve::serve(args.run_dir.join("agent.sock"), view.clone(), pods.clone());
    let numbers = metrics::serve(args.metrics, metrics.clone(), view.clone(), actor.ports.emulation.clone());
    let service = actor.ports.metadata.clone();
    let switch = actor.ports.switch.clone();
    let answers =
        service.map(|service| Arc::new(metadata::Answers::new(&args.node_name, service, switch, wake.clone())));
    let answering = answer(answers.clone(), joined.clone());
    let told = (view, pods, answers);
    let reconciler = Reconciler::new(actor, joined, desired, told, (beats.clone(), metrics.clone()), args.into());
    tokio::select! {
        biased;
        result = session => result.context("the session with the API server ended"),
        result = server => result.context("serving agent.sock"),
        result = numbers => result.context("serving metrics"),
        () = reconciler.run() => Ok(()),
        () = answering => Ok(()),
        () = shutdown => {
            tracing::info!("ending: what is exposed stays exposed");
            Ok(())
        }
    }
}

/// For ever.
async fn answer(
    answers: Option<Arc<metadata::Answers>>,
    joined: tokio::sync::watch::Receiver<Option<cluster::Cluster>>,
) {
    match answers {
        Some(answers) => answers.run(joined).await,
        None => std::future::pending().await,
    }
}
