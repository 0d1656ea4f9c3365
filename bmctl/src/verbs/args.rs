//! Flags of the verbs that act on whole machines.

use crate::args::{Output, duration, machines};
use crate::complete::{self, Names};
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use std::ffi::OsStr;
use std::time::Duration;

#[derive(Subcommand, Debug)]
pub enum VerbCommand {
    /// Take, list and delete snapshots of machines
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Put the disks of a stopped machine back to a snapshot
    Restore(Restore),
    /// Create a machine from the disks of another machine
    Clone(CloneMachine),
    /// Move a machine to another server: stop, take its disks and NICs there, start
    Migrate(Migrate),
    /// Cancel a migration, as long as the machine still has its disks
    #[command(name = "migrate-cancel")]
    MigrateCancel(MigrateCancel),
}

#[derive(Subcommand, Debug)]
pub enum SnapshotCommand {
    /// Take a snapshot of all disks that a machine writes to
    Create(CreateSnapshot),
    /// List snapshots
    #[command(alias = "get")]
    List(ListSnapshots),
    /// Delete snapshots, and by their deletion policy what they hold
    Delete(DeleteSnapshots),
}

/// What every verb that makes an operation has.
#[derive(Args, Debug, Clone)]
pub struct Making {
    /// Wait until the change is done; what the machine waits for and the next command go to standard error
    #[arg(long)]
    pub wait: bool,
    /// How long to wait, for example 90s, 5m or 1h
    #[arg(long, default_value = "10m", value_parser = duration, requires = "wait")]
    pub timeout: Duration,
    /// Let the API server check the object, without creating the object
    #[arg(long)]
    pub dry_run: bool,
    /// Print the object as it now is (before the controller has acted), or its name
    #[arg(short, long, value_enum)]
    pub output: Option<Output>,
}

#[derive(Args, Debug)]
pub struct CreateSnapshot {
    /// The machine
    #[arg(add = machines())]
    pub machine: String,
    /// The snapshot's name [default: the machine's with date and time]
    pub name: Option<String>,
    /// Take the snapshot of each disk by itself: for a machine that runs with several disks
    #[arg(long)]
    pub per_disk: bool,
    /// Keep the VolumeSnapshots when the snapshot is deleted
    #[arg(long)]
    pub retain: bool,
    /// The VolumeSnapshotClass [default: that of each disk's driver]
    #[arg(long)]
    pub volume_snapshot_class: Option<String>,
    /// The VolumeGroupSnapshotClass of several disks that run [default: that of their driver]
    #[arg(long, conflicts_with = "per_disk")]
    pub volume_group_snapshot_class: Option<String>,
    #[command(flatten)]
    pub making: Making,
}

#[derive(Args, Debug)]
pub struct ListSnapshots {
    /// Of this machine only
    #[arg(add = machines())]
    pub machine: Option<String>,
    /// In all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Another form than the table
    #[arg(short, long, value_enum)]
    pub output: Option<Output>,
}

#[derive(Args, Debug)]
pub struct DeleteSnapshots {
    /// Snapshots by name
    #[arg(required = true, add = snapshots())]
    pub names: Vec<String>,
    /// Let the API server check the request, without deleting anything
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args, Debug)]
pub struct Restore {
    /// The machine; stop it first
    #[arg(add = machines())]
    pub machine: String,
    /// The snapshot
    #[arg(add = snapshots())]
    pub snapshot: String,
    #[command(flatten)]
    pub making: Making,
}

#[derive(Args, Debug)]
pub struct CloneMachine {
    /// The machine that is cloned
    #[arg(add = machines())]
    pub source: String,
    /// The new machine's name
    pub name: String,
    /// From this snapshot [default: one that is taken now, named after the new machine]
    #[arg(long, add = snapshots())]
    pub snapshot: Option<String>,
    /// For example eth0=10.20.0.8: an unused address; may be repeated [default: the controller chooses]
    #[arg(long, value_name = "INTERFACE=ADDRESS", value_parser = pair)]
    pub address: Vec<(String, String)>,
    /// Another VNic for an interface that has one of its own, for example eth1=nic7; may be repeated
    #[arg(long, value_name = "INTERFACE=VNIC", value_parser = pair)]
    pub vnic: Vec<(String, String)>,
    /// The new machine is not started
    #[arg(long)]
    pub halted: bool,
    /// How long to wait for the snapshot, and with --wait for the new machine
    #[arg(long, default_value = "10m", value_parser = duration)]
    pub timeout: Duration,
    /// Wait until the new machine is ready
    #[arg(long)]
    pub wait: bool,
    /// Print the new machine and let the server check it, without making anything; needs --snapshot
    #[arg(long, requires = "snapshot")]
    pub dry_run: bool,
    /// Print the new machine as it now is (before the controller has acted), or its name
    #[arg(short, long, value_enum)]
    pub output: Option<Output>,
}

#[derive(Args, Debug)]
pub struct Migrate {
    /// The machine
    #[arg(add = machines())]
    pub machine: String,
    /// To this Hardware [default: any free one that fits]
    #[arg(long, value_name = "HARDWARE")]
    pub to: Option<String>,
    /// To any Hardware with these labels, for example rack=7,class=gpu
    #[arg(short = 'l', long, conflicts_with = "to", value_delimiter = ',', value_parser = pair)]
    pub selector: Vec<(String, String)>,
    #[command(flatten)]
    pub making: Making,
}

#[derive(Args, Debug)]
pub struct MigrateCancel {
    /// The machine
    #[arg(add = machines())]
    pub machine: String,
    /// Let the API server check the request, without deleting anything
    #[arg(long)]
    pub dry_run: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("must be NAME=VALUE; is '{text}'"))?;
    Ok((key.to_owned(), value.to_owned()))
}

pub fn snapshots() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| complete::names(Names::Snapshots, current))
}
