//! `bmctl`: like kubectl, for bare-metal machines. It edits the same objects that `kubectl edit` would, and explains.

mod args;
mod change;
mod cluster;
mod disks;
mod dpus;
mod explain;
mod failure;
mod get;
mod interfaces;
mod output;
mod power;
mod table;
mod timeline;
mod wait;

use args::{Cli, Command, DpuCommand};
use clap::{CommandFactory, FromArgMatches};
use cluster::Cluster;
use failure::Failure;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // kubectl finds plug-ins by their file name: called as kubectl-bm, everything we print says `kubectl bm`.
    let own_name = std::env::args().next().unwrap_or_default();
    let program = if own_name.ends_with("kubectl-bm") { "kubectl bm" } else { "bmctl" };
    let matches = Cli::command().bin_name(program).get_matches();
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    match run(cli, program).await {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

async fn run(cli: Cli, program: &'static str) -> Result<String, Failure> {
    match cli.command {
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "bmctl", &mut script);
            return Ok(String::from_utf8_lossy(&script).into_owned());
        }
        Command::Version { client: true } => return Ok(format!("Client Version: {}\n", env!("CARGO_PKG_VERSION"))),
        _ => {}
    }
    let cluster = Cluster::connect(&cli.cluster, program).await?;
    match cli.command {
        Command::Get(args) => get::run(&cluster, &args).await,
        Command::Explain { machine, output } => explain::run(&cluster, &machine, output).await,
        Command::Timeline { machine, output } => timeline::run(&cluster, &machine, output).await,
        Command::Start(args) => power::start(&cluster, &args).await,
        Command::Stop(args) => power::stop(&cluster, &args).await,
        Command::Restart(args) => power::restart(&cluster, &args).await,
        Command::AddDisk(args) => disks::add(&cluster, &args).await,
        Command::RemoveDisk(args) => disks::remove(&cluster, &args).await,
        Command::AddInterface(args) => interfaces::add(&cluster, &args).await,
        Command::RemoveInterface(args) => interfaces::remove(&cluster, &args).await,
        Command::Dpu(DpuCommand::Get { output }) => dpus::get(&cluster, output).await,
        Command::Dpu(DpuCommand::ConfirmDown { uid, yes }) => dpus::confirm_down(&cluster, &uid, yes).await,
        Command::Version { .. } | Command::Completion { .. } => cluster.versions().await,
    }
}
