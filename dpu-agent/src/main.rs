//! The binary `dpu-agent`. See the library for what it does.

use clap::Parser;
use dpu_agent::args::Args;
use runtime::process;

fn main() -> anyhow::Result<()> {
    if let Some(error) = dpu_agent::wire_up::in_root(std::env::args_os().skip(1)) {
        return Err(error);
    }
    let args = Args::parse();
    process::log(&args.log_filter, args.log_format)?;
    process::provide_tls();
    // One thread, and few small ones for file systems that block: a DPU's memory is its tenants'.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(8)
        .thread_stack_size(512 * 1024)
        .build()?;
    let result = runtime.block_on(async {
        let shutdown = process::stopped()?;
        if args.worker {
            return dpu_agent::worker::run(&args, shutdown).await;
        }
        let ports = dpu_agent::wire_up::ports(&args)?;
        if args.sanitize {
            return dpu_agent::sanitize(&args, &ports).await;
        }
        Box::pin(dpu_agent::run(&args, ports, shutdown)).await
    });
    // A blocking call that hangs in a file system must not keep the process.
    runtime.shutdown_background();
    result
}
