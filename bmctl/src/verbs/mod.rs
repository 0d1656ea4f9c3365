//! Verbs that act on whole machines: each makes one object of its kind, and can wait for its end.

pub mod args;
mod clone;
mod making;
mod migrate;
mod restore;
mod snapshot;

use crate::cluster::Cluster;
use crate::failure::Failure;
use args::{SnapshotCommand, VerbCommand};

/// Examples for `--help`, by the verb's words.
pub const EXAMPLES: &[(&[&str], &str)] = &[
    (
        &["snapshot", "create"],
        "  bmctl snapshot create bm-01 --wait\n  bmctl snapshot create bm-01 before-upgrade\n  bmctl snapshot create db-01 nightly --per-disk",
    ),
    (&["snapshot", "list"], "  bmctl snapshot list\n  bmctl snapshot list bm-01\n  bmctl snapshot list -A -o wide"),
    (&["snapshot", "delete"], "  bmctl snapshot delete before-upgrade"),
    (&["restore"], "  bmctl stop bm-01 --wait && bmctl restore bm-01 before-upgrade --wait && bmctl start bm-01"),
    (
        &["clone"],
        "  bmctl clone bm-01 bm-02 --address eth0=10.20.0.8\n  bmctl clone bm-01 bm-02 --snapshot before-upgrade --address eth0=10.20.0.8 --halted",
    ),
    (
        &["migrate"],
        "  bmctl migrate bm-01 --wait\n  bmctl migrate bm-01 --to rack1-u08\n  bmctl migrate bm-01 -l rack=7",
    ),
    (&["migrate-cancel"], "  bmctl migrate-cancel bm-01"),
];

pub async fn run(cluster: &Cluster, command: VerbCommand) -> Result<String, Failure> {
    match command {
        VerbCommand::Snapshot(SnapshotCommand::Create(args)) => snapshot::create(cluster, &args).await,
        VerbCommand::Snapshot(SnapshotCommand::List(args)) => snapshot::list(cluster, &args).await,
        VerbCommand::Snapshot(SnapshotCommand::Delete(args)) => snapshot::delete(cluster, &args).await,
        VerbCommand::Restore(args) => restore::run(cluster, &args).await,
        VerbCommand::Clone(args) => clone::run(cluster, &args).await,
        VerbCommand::Migrate(args) => migrate::run(cluster, &args).await,
        VerbCommand::MigrateCancel(args) => migrate::cancel(cluster, &args).await,
    }
}
