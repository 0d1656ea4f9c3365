//! `make demo` and `make demo-clean`.

use clap::{Parser, Subcommand, ValueEnum};
use std::process::ExitCode;
use tests::demo::{self, Part};
use tests::site::Agents;

#[derive(Parser)]
#[command(about = "Metalplane on this machine: from kubectl apply to a booted server, live")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show everything
    Run {
        /// Leave the machine and the cluster running
        #[arg(long)]
        keep: bool,
        /// How controller and agents run
        #[arg(long, value_enum, default_value = "daemonset")]
        agents: AgentsArg,
        /// One part of the demo, instead of all
        #[arg(long, value_enum)]
        part: Option<Part>,
    },
    /// Delete the machine, show that nothing is left, end the cluster
    Clean,
}

#[derive(ValueEnum, Clone, Copy)]
enum AgentsArg {
    Daemonset,
    Process,
}

fn main() -> ExitCode {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // One thread: the sandbox asks the kernel to end it when the thread that started it ends.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("demo: cannot start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(async {
        match Cli::parse().command {
            Command::Run { keep, agents, part } => {
                let agents = match agents {
                    AgentsArg::Daemonset => Agents::DaemonSet,
                    AgentsArg::Process => Agents::Process,
                };
                Box::pin(demo::run(keep, agents, part)).await
            }
            Command::Clean => demo::clean().await,
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: failed: {error:#}");
            eprintln!("demo: logs are in {}", demo::logs().display());
            ExitCode::FAILURE
        }
    }
}
