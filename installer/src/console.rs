//! What the installer says, and what it shows: on the server's console, and, of what it says itself, to the syslog server that the kernel's
//! arguments name. Nobody may say what is secret.

use crate::syslog::Syslog;
use std::fmt::Display;
use std::sync::OnceLock;

/// There is one console, and so there is one log.
static LOG: OnceLock<Syslog> = OnceLock::new();

/// From now on what is said goes there, too.
pub fn log_to(log: Syslog) {
    // A second one would be another start's.
    let _ = LOG.set(log);
}

/// In the words of the installer.
pub fn say(line: impl Display) {
    println!("installer: {line}");
    if let Some(log) = LOG.get() {
        log.send(&line.to_string());
    }
}

/// On the console alone: what a program of the disk has said, which may be anything; and what is for the server to read.
pub fn show(line: impl Display) {
    println!("installer: {line}");
}
