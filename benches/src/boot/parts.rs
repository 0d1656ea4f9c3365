//! The other programs: this machine's own, or of Debian's packages, unpacked.

use anyhow::{Context, Result};
use sandbox::preflight;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tokio::process::Command;

#[derive(Debug, Clone)]
pub struct Program {
    pub path: PathBuf,
    pub environment: BTreeMap<String, String>,
}

impl Program {
    /// In a network namespace.
    pub fn inside(&self, namespace: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(&self.path).envs(&self.environment).kill_on_drop(true);
        command
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.envs(&self.environment).kill_on_drop(true);
        command
    }
}

pub struct Parts {
    pub dnsmasq: Option<Program>,
    pub kea: Option<Program>,
    pub tftpd: Option<Program>,
    pub atftpd: Option<Program>,
    /// Serves what is written to disks, too: there is nothing without it.
    pub nginx: Program,
    pub zstd: Option<Program>,
    pub qemu_img: Option<Program>,
    /// Of those whose version matters.
    pub versions: String,
}

/// `None`: it is told that it is missing.
async fn part(name: &str, package: &str) -> Option<Program> {
    match preflight::unpacked(name, package).await {
        Ok((path, environment)) => Some(Program { path, environment }),
        Err(error) => {
            eprintln!("SKIP {name}: {error:#}");
            None
        }
    }
}

impl Parts {
    pub async fn find() -> Result<Self> {
        let nginx = part("nginx", "nginx-light").await.context("without nginx nothing serves images")?;
        let mut parts = Self {
            dnsmasq: part("dnsmasq", "dnsmasq-base").await,
            kea: part("kea-dhcp4", "kea-dhcp4-server").await,
            tftpd: part("in.tftpd", "tftpd-hpa").await,
            atftpd: part("atftpd", "atftpd").await,
            nginx,
            zstd: part("zstd", "zstd").await,
            qemu_img: part("qemu-img", "qemu-utils").await,
            versions: String::new(),
        };
        let mut told = Vec::new();
        for (name, program, flag) in [
            ("dnsmasq", &parts.dnsmasq, "--version"),
            ("Kea", &parts.kea, "-v"),
            ("qemu-img", &parts.qemu_img, "--version"),
        ] {
            let Some(program) = program else { continue };
            let said = program.command().arg(flag).output().await.with_context(|| format!("start {name}"))?;
            told.push(format!("{name} {}", number(&String::from_utf8_lossy(&said.stdout))));
        }
        parts.versions = told.join(", ");
        Ok(parts)
    }
}

/// The first word that begins with a digit.
fn number(said: &str) -> &str {
    said.split_ascii_whitespace().find(|word| word.starts_with(|first: char| first.is_ascii_digit())).unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_first_number() {
        assert_eq!(number("Dnsmasq version 2.90  Copyright (c) 2000-2024"), "2.90");
        assert_eq!(number("2.2.0\n"), "2.2.0");
        assert_eq!(number("nothing"), "?");
    }
}
