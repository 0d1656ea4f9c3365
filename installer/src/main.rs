//! Process 1 of the installer's image. See the library for what it does.

use anyhow::{Context, Result};
use installer::{
    actions::BuiltIn,
    agent::{Agent, Then},
    arguments::{self, Arguments},
    attributes, console, eraser,
    modules::Modules,
    network,
    syslog::Syslog,
    system,
};
use std::process::ExitCode;
use std::time::Duration;

/// For somebody to read the console before the machine starts again.
const READ: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|argument| argument == "--version") {
        println!("installer {}", version::VERSION);
        return ExitCode::SUCCESS;
    }
    if std::process::id() != 1 {
        eprintln!(
            "installer: this is process 1 of an image that a server boots from the network; it does nothing elsewhere"
        );
        return ExitCode::FAILURE;
    }
    // The boot server counts what does not come back as not installed, and starts the next try.
    let failed = match run() {
        Ok(Then::Kexec) => system::start_loaded().err(),
        Ok(_) => None,
        Err(error) => Some(error),
    };
    if let Some(error) = failed {
        console::say(format_args!("{error:#}; the machine starts again in {} s", READ.as_secs()));
        std::thread::sleep(READ);
    }
    loop {
        if let Err(error) = system::restart() {
            console::say(format_args!("{error:#}"));
        }
        std::thread::sleep(READ);
    }
}

/// Returns when the machine is to be restarted: how.
fn run() -> Result<Then> {
    system::mount_all()?;
    let mut modules = Modules::of_this_image()?;
    modules.load()?;
    let line = system::kernel_arguments()?;
    if let Some(disk) = arguments::eraser(&line) {
        console::say(format_args!("{}, erases the disks of this server", version::VERSION));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start tokio")?;
        return runtime.block_on(eraser::run(disk));
    }
    let arguments = Arguments::parse(&line).map_err(anyhow::Error::msg).context("the kernel's arguments")?;
    if arguments.vlan.is_some() {
        modules.named(network::VLAN_MODULE)?;
    }
    let variables = system::firmware_variables(&mut modules);
    // Not who it is: that may hold a token.
    let begins = format!("{}, asks {}", version::VERSION, arguments.servers.join(", "));
    console::say(&begins);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start tokio")?;
    runtime.block_on(async {
        network::up(arguments.mac, arguments.vlan, arguments.lease, arguments.mtu).await.context("the network")?;
        logs(arguments.syslog.as_ref(), &arguments.worker, &begins).await;
        let agent = Agent::new(&arguments.servers, arguments.pin, arguments.worker, attributes::read());
        let agent = agent.map_err(anyhow::Error::msg).context("the server at grpc_authority")?;
        let actions = BuiltIn::of_this_machine(agent.session()).with_variables(variables);
        Ok(agent.serve(&actions.with_proxies(arguments.proxies)).await)
    })
}

/// To the server of syslog that the arguments name. Without it the console has all that is said.
async fn logs(server: Option<&(String, u16)>, worker: &str, begins: &str) {
    let Some((host, port)) = server else { return };
    match Syslog::to(host, *port, worker).await {
        Ok(log) => {
            log.send(begins);
            console::log_to(log);
        }
        Err(error) => console::say(format_args!("the server of syslog at {host}:{port}: {error}")),
    }
}
