//! `bmctl`: like kubectl, for bare-metal machines. It edits the same objects that `kubectl edit` would, and explains.
//! Called as `kubectl-bm`, everything it prints says `kubectl bm`.

mod args;
mod change;
mod cluster;
mod complete;
mod disks;
mod dpus;
mod explain;
mod failure;
mod forget;
mod get;
mod hardware;
mod help;
mod interfaces;
mod net;
mod output;
mod power;
mod reinstall;
mod report;
mod table;
#[cfg(test)]
mod tests;
mod timeline;
mod verbs;
mod wait;
mod watch;
mod workflow;

use anyhow::Context;
use args::{Cli, Command, DpuCommand, HardwareCommand, NetCommand, WorkflowCommand};
use clap::FromArgMatches;
use cluster::Cluster;
use failure::Failure;
use runtime::version::VERSION;
use std::process::ExitCode;

fn main() -> ExitCode {
    let program = args::program();
    complete::answer_shell(program);
    let matches = help::command(program).get_matches();
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    match run(cli, program) {
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

fn run(cli: Cli, program: &'static str) -> Result<String, Failure> {
    match &cli.command {
        Command::Completion { shell } => return complete::script(*shell),
        Command::Candidates { words } => return Ok(complete::for_kubectl(words)),
        Command::Version { client: true } => return Ok(format!("Client Version: {VERSION}\n")),
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("make a runtime")?;
    runtime.block_on(async {
        // It may run where no cluster is in reach.
        if let Command::Dpu(DpuCommand::Report(report)) = &cli.command {
            return Box::pin(report::run(&cli.cluster, report, program)).await;
        }
        let cluster = Cluster::connect(&cli.cluster, program).await?;
        let result = carry_out(&cluster, cli.command).await;
        if let Err(Failure::Refused { .. }) = &result
            && let Some(skew) = cluster.skew().await
        {
            eprintln!("warning: {skew}");
        }
        result
    })
}

async fn carry_out(cluster: &Cluster, command: Command) -> Result<String, Failure> {
    match command {
        Command::Get(args) => get::run(cluster, &args).await,
        Command::Explain { machine, output } => explain::run(cluster, &machine, output).await,
        Command::Timeline { machine, output } => timeline::run(cluster, &machine, output).await,
        Command::Start(args) => power::start(cluster, &args).await,
        Command::Stop(args) => power::stop(cluster, &args).await,
        Command::Restart(args) => power::restart(cluster, &args).await,
        Command::Reinstall(args) => reinstall::run(cluster, &args).await,
        Command::AddDisk(args) => disks::add(cluster, &args).await,
        Command::RemoveDisk(args) => disks::remove(cluster, &args).await,
        Command::AddInterface(args) => interfaces::add(cluster, &args).await,
        Command::RemoveInterface(args) => interfaces::remove(cluster, &args).await,
        Command::Verb(command) => verbs::run(cluster, command).await,
        Command::Dpu(DpuCommand::Get { output }) => dpus::get(cluster, output).await,
        Command::Dpu(DpuCommand::ConfirmDown { uid, yes, dry_run }) => {
            dpus::confirm_down(cluster, &uid, yes, dry_run).await
        }
        Command::Dpu(DpuCommand::Forget { dpu, orphans, yes, dry_run }) => {
            forget::run(cluster, &dpu, &orphans, yes, dry_run).await
        }
        Command::Workflow(WorkflowCommand::Get { workflows: names, output }) => {
            workflow::get(cluster, &names, output).await
        }
        Command::Workflow(WorkflowCommand::Logs { workflow: name, action }) => {
            workflow::logs(cluster, &name, action.as_deref()).await
        }
        Command::Hardware(HardwareCommand::Get { hardware: names, output }) => {
            hardware::get(cluster, &names, output).await
        }
        Command::Hardware(HardwareCommand::Approve { hardware: name, bmc, serial_number, change }) => {
            let approval = hardware::Approval { bmc: bmc.as_deref(), serial_number: serial_number.as_deref() };
            hardware::approve(cluster, &name, &approval, change).await
        }
        Command::Hardware(HardwareCommand::Erase { hardware: name, change }) => {
            hardware::erase(cluster, &name, change).await
        }
        Command::Hardware(HardwareCommand::Release { hardware: name, yes, change, with_data: _ }) => {
            hardware::release(cluster, &name, yes, change).await
        }
        Command::Net(NetCommand::Trace(args)) => net::trace(cluster, &args).await,
        Command::Version { .. }
        | Command::Completion { .. }
        | Command::Candidates { .. }
        | Command::Dpu(DpuCommand::Report(_)) => cluster.versions().await,
    }
}
