//! For which machine a program is: an image with one of another architecture would start nowhere.

use anyhow::{Context, Result, ensure};
use sandbox::architecture::Architecture;
use std::fs::File;
use std::io::Read;
use std::path::Path;

const MAGIC: &[u8] = b"\x7fELF";
/// Where `e_machine` is (System V ABI, "ELF Header").
const MACHINE: usize = 18;

/// A file that is no program is for every machine.
pub(super) fn check(file: &Path, architecture: Architecture) -> Result<()> {
    let mut head = Vec::new();
    let opened = File::open(file).with_context(|| format!("read {}", file.display()))?;
    opened.take(MACHINE as u64 + 2).read_to_end(&mut head).with_context(|| format!("read {}", file.display()))?;
    if let Some([low, high]) = head.get(MACHINE..).filter(|_| head.starts_with(MAGIC)) {
        let machine = u16::from_le_bytes([*low, *high]);
        let wanted = architecture.elf();
        ensure!(
            machine == wanted,
            "{} is for machine {machine} of ELF, not for {architecture} ({wanted})",
            file.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_program_of_another_machine_is_refused() {
        let own = std::env::current_exe().expect("this program");
        let (here, other) = match Architecture::here() {
            Architecture::Amd64 => (Architecture::Amd64, Architecture::Arm64),
            Architecture::Arm64 => (Architecture::Arm64, Architecture::Amd64),
        };
        check(&own, here).expect("its own machine");
        let error = check(&own, other).expect_err("another machine").to_string();
        assert!(error.contains(other.name()), "{error}");
        let folder = tempfile::tempdir().expect("a folder");
        let text = folder.path().join("certificates");
        fs::write(&text, "-----BEGIN CERTIFICATE-----").expect("written");
        check(&text, other).expect("no program");
        fs::write(&text, "\x7fELF").expect("written");
        check(&text, other).expect("too short for one");
    }
}
