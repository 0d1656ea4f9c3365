//! What a program does first: its log, TLS, and the signals that end it.

use anyhow::{Context, Result};
use clap::ValueEnum;
use std::io::IsTerminal;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// An answer that it cannot read this part of kube logs as a warning, whole: a list of all machines, with what users have written into them.
/// What is wrong with the answer the caller is told, and logs ([`crate::unreadable`]).
const ANSWERS: &str = "kube_client::client=error";

/// The log goes to stderr. `filter`: a level, or directives such as `kube=warn`.
pub fn log(filter: &str, format: LogFormat) -> Result<()> {
    let filter = filtered(filter)?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A line that cannot be written (a disk that is full, a journal that was started anew) is lost. The library would tell so on stderr,
    // where the log is, and a task that cannot write there panics.
    let log = log.with_ansi(std::io::stderr().is_terminal()).log_internal_errors(false);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

/// What is asked for, which may name that part of kube too: of two directives for one place the later counts.
fn filtered(filter: &str) -> Result<EnvFilter> {
    EnvFilter::try_new(format!("{ANSWERS},{filter}")).with_context(|| format!("what is logged: '{filter}'"))
}

/// Of several TLS providers that may be compiled in, the one that everything uses. Again: nothing happens.
pub fn provide_tls() {
    // An error says that one is provided already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Ends when the process is asked to: SIGTERM, or SIGINT. Inside a tokio runtime.
pub fn stopped() -> std::io::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            biased;
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::process::{Command, Stdio};
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no test panics here").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What a log with this filter has of warnings with an answer in them, and of others.
    fn logged(filter: &str) -> String {
        let written = Written::default();
        let writer = written.clone();
        let log = tracing_subscriber::fmt().with_env_filter(filtered(filter).expect("a filter"));
        let log = log.with_writer(move || writer.clone()).with_ansi(false);
        tracing::subscriber::with_default(log.finish(), || {
            tracing::warn!(target: "kube_client::client", "an answer");
            tracing::error!(target: "kube_client::client::builder", "a refusal");
            tracing::warn!(target: "controller::cache", "a warning");
        });
        let bytes = written.0.lock().expect("no test panics here").clone();
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn answers_of_the_api_server_are_not_logged_unless_somebody_asks_for_it() {
        let usual = logged("info");
        assert!(usual.contains("a warning") && usual.contains("a refusal") && !usual.contains("an answer"), "{usual}");
        let quiet = logged("info,kube_client::client::builder=off");
        assert!(!quiet.contains("a refusal") && !quiet.contains("an answer"), "{quiet}");
        assert!(logged("info,kube_client::client=warn").contains("an answer"));
        assert!(filtered("info,controller=loud").is_err(), "what is no filter is refused");
    }

    const INSIDE: &str = "METALPLANE_LOG_TEST";
    /// Of whoever has logged, and goes on.
    const GOES_ON: &str = "goes on";

    /// This very test runs once more as a program whose stderr is a disk that is full: every write there is ENOSPC.
    #[test]
    fn a_log_on_a_full_disk_ends_nobody() {
        let test = "process::tests::a_log_on_a_full_disk_ends_nobody";
        if let Ok(format) = std::env::var(INSIDE) {
            log("info", LogFormat::from_str(&format, false).expect("a format")).expect("a log");
            tracing::error!("a line that is lost");
            println!("{GOES_ON}");
            return;
        }
        let full = || File::options().write(true).open("/dev/full").expect("a disk that is full");
        let error = full().write_all(b"x").expect_err("it is full");
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        for format in ["text", "json"] {
            let mut program = Command::new(std::env::current_exe().expect("this program"));
            program.args(["--exact", test, "--nocapture"]).env(INSIDE, format).stderr(Stdio::from(full()));
            let ended = program.output().expect("it starts");
            let said = String::from_utf8_lossy(&ended.stdout);
            assert!(ended.status.success() && said.contains(GOES_ON), "{format}: {}: {said}", ended.status);
        }
    }
}
