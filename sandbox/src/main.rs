//! The `sandbox` program; see the library's documentation.

use std::future::Future;
use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use sandbox::args::{Cli, Command};
use sandbox::{cluster, file_server, guest, handle, relay, server, supervisor};

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info")),
        )
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    // Fails only when a provider is installed already, and then there is one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match dispatch(cli.command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("sandbox: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Namespaces can only be entered while the process has one thread, so each command starts its own runtime, or none.
fn dispatch(command: Command) -> Result<ExitCode> {
    match command {
        Command::Launch(args) => cluster::launch::exec(&args).map(|never| match never {}),
        Command::Hold(args) => cluster::holder::run(&args.config).map(|()| ExitCode::SUCCESS),
        Command::Run(args) => block_on(supervisor::run(args)),
        Command::Down(args) => block_on(supervisor::down(&args)),
        Command::Status(args) => block_on(handle::print_status(&args.name.name, args.json)),
        Command::Enter(args) => handle::enter(&args.name.name, &args.node, &args.command).map(|never| match never {}),
        Command::LoadImage(args) => block_on(handle::print_load_image(&args.name.name, &args.tar, args.nodes)),
        Command::Power(args) => block_on(handle::power(&args.name.name, &args.dpu, &args.state)),
        Command::Control(args) => block_on(handle::print_request(&args.name.name, &args.request)),
        Command::VirtualServer(args) => block_on(server::run(&args.config)),
        Command::GuestImage(args) => block_on(guest::run(&args)),
        Command::ServeFiles(args) => block_on(file_server::run(&args)),
        Command::Relay(args) => block_on(relay::run(&args)),
    }
}

/// One thread runs the supervisor: a child asks to be killed when the *thread* that made it ends, and the main thread
/// is the one that lives as long as the process.
fn block_on(work: impl Future<Output = Result<()>>) -> Result<ExitCode> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(work).map(|()| ExitCode::SUCCESS)
}
