//! Processes of a sandbox, read from /proc: which they are, what they hold, what they use.

use anyhow::{Context, Result, ensure};
use nix::unistd::{SysconfVar, sysconf};
use sandbox::layout::Layout;
use std::fs;
use std::path::PathBuf;

const MIB: f64 = 1024.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(pub i32);

impl Process {
    /// The one process of a sandbox whose program has this name and whose command line has this word.
    pub fn find(layout: &Layout, program: &str, word: &str) -> Result<Self> {
        let group = format!("{}/", layout.cgroup());
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // A process may end while we look: then it is none.
            let (Ok(words), Ok(groups)) =
                (fs::read(entry.path().join("cmdline")), fs::read_to_string(entry.path().join("cgroup")))
            else {
                continue;
            };
            let words: Vec<String> =
                words.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
            let is_program = words.first().is_some_and(|first| PathBuf::from(first).ends_with(program));
            if is_program && words.iter().any(|own| own == word) && groups.contains(&group) {
                found.push(Self(pid));
            }
        }
        ensure!(found.len() == 1, "{} processes {program} … {word} in the sandbox {}", found.len(), layout.name);
        Ok(found[0])
    }

    fn read(self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.0);
        fs::read_to_string(&path).with_context(|| format!("read {path}"))
    }

    /// A line of `status` in MiB: VmRSS, VmHWM, RssAnon.
    pub fn memory(self, field: &str) -> Result<f64> {
        let status = self.read("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<f64>().ok());
        Ok(kib.with_context(|| format!("process {} has no {field}", self.0))? / MIB)
    }

    /// Of all its threads since it started.
    pub fn cpu_seconds(self) -> Result<f64> {
        let ticks = ticks(&self.read("stat")?).with_context(|| format!("the times of process {}", self.0))?;
        let per_second = sysconf(SysconfVar::CLK_TCK)?.context("the kernel's tick")?;
        Ok(ticks as f64 / per_second as f64)
    }
}

/// User and system time of a line of /proc/PID/stat. The program's name may have blanks and brackets.
fn ticks(stat: &str) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(')')?;
    let mut fields = behind.split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 100 1000 10";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("nothing"), None);
    }

    #[test]
    fn this_process_has_memory_and_time() {
        let own = Process(i32::try_from(std::process::id()).expect("a process id"));
        assert!(own.memory("VmRSS").expect("readable") > 0.0);
        assert!(own.cpu_seconds().expect("readable") >= 0.0);
        assert!(own.memory("NoSuchField").is_err());
    }
}
