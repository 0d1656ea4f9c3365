//! One line of JSON per run, in `benches/history/NAME.jsonl`.

use crate::Figures;
use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A run: its figures, and where they come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub date: String,
    /// The commit, with a `+` if something else than histories and documentation was changed since.
    pub commit: String,
    pub machine: String,
    /// What else they depend on: the version of a part that is not ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    pub command: String,
    pub figures: Figures,
}

impl Record {
    pub fn of_this_run(root: &Path, figures: Figures, on: Option<String>) -> Result<Self> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        Ok(Self {
            date: Timestamp::now().strftime("%Y-%m-%d %H:%M").to_string(),
            commit: commit(root)?,
            machine: machine(),
            on,
            command: format!("cargo xtask bench {}", words.join(" ")),
            figures,
        })
    }

    pub fn day(&self) -> &str {
        self.date.split(' ').next().unwrap_or_default()
    }
}

fn file(root: &Path, name: &str) -> PathBuf {
    root.join("benches/history").join(format!("{name}.jsonl"))
}

pub fn append(root: &Path, name: &str, record: &Record) -> Result<()> {
    let path = file(root, name);
    let mut line = serde_json::to_string(record)?;
    line.push('\n');
    let folder = path.parent().context("a file has a folder")?;
    fs::create_dir_all(folder)?;
    let mut file = fs::File::options().create(true).append(true).open(&path)?;
    file.write_all(line.as_bytes()).with_context(|| format!("write {}", path.display()))?;
    give_to_the_owner_of(root, folder)?;
    give_to_the_owner_of(root, &path)
}

/// Measuring needs root; the checkout is the caller's.
pub fn give_to_the_owner_of(root: &Path, path: &Path) -> Result<()> {
    let owner = fs::metadata(root)?;
    std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid()))
        .with_context(|| format!("give {} to the owner of the checkout", path.display()))
}

/// The newest run; `None`: there was none.
pub fn last(root: &Path, name: &str) -> Result<Option<Record>> {
    let path = file(root, name);
    let Ok(text) = fs::read_to_string(&path) else { return Ok(None) };
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    let parsed = line.map(serde_json::from_str).transpose();
    parsed.with_context(|| format!("the last line of {}", path.display()))
}

fn commit(root: &Path) -> Result<String> {
    let git = |words: &[&str]| -> Result<String> {
        // The checkout may be another user's: measuring needs root.
        let done = Command::new("git").args(["-c", "safe.directory=*"]).args(words).current_dir(root).output();
        let done = done.context("start git")?;
        ensure!(done.status.success(), "git {}: {}", words.join(" "), String::from_utf8_lossy(&done.stderr).trim());
        Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
    };
    let own = ["status", "--porcelain", "--", ".", ":!benches/history", ":!docs"];
    let changed = if git(&own)?.is_empty() { "" } else { "+" };
    Ok(format!("{}{changed}", git(&["rev-parse", "--short=9", "HEAD"])?))
}

/// What figures depend on, in a few words.
fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let model = field(&processors, "model name", ':').unwrap_or("unknown processor").to_owned();
    let cores = processors.lines().filter(|line| line.starts_with("processor")).count();
    let memory = read("/proc/meminfo");
    let kib: f64 = field(&memory, "MemTotal", ':').and_then(|v| v.split(' ').next()?.parse().ok()).unwrap_or_default();
    let release = read("/etc/os-release");
    let system = field(&release, "PRETTY_NAME", '=').unwrap_or("unknown system").trim_matches('"').to_owned();
    format!("{cores} x {model}, {:.0} GiB, {system}", kib / (1 << 20) as f64)
}

fn field<'a>(text: &'a str, name: &str, sign: char) -> Option<&'a str> {
    text.lines().filter_map(|line| line.split_once(sign)).find(|(key, _)| key.trim() == name).map(|(_, v)| v.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Figure, Unit};

    fn record(date: &str) -> Record {
        let figures = [("a".to_owned(), Figure::one(Unit::Milliseconds, 1.5))].into();
        let text = |text: &str| text.to_owned();
        Record { date: text(date), commit: text("abc"), machine: text("m"), on: None, command: text("c"), figures }
    }

    #[test]
    fn the_last_line_is_the_newest_run() {
        let root = tempfile::tempdir().expect("a folder");
        assert_eq!(last(root.path(), "x").expect("nothing is no error"), None);
        for date in ["2026-01-01 10:00", "2026-01-02 10:00"] {
            append(root.path(), "x", &record(date)).expect("written");
        }
        let newest = last(root.path(), "x").expect("readable").expect("there");
        assert_eq!(newest, record("2026-01-02 10:00"));
        assert_eq!(newest.day(), "2026-01-02");
        assert_eq!(fs::read_to_string(file(root.path(), "x")).expect("there").lines().count(), 2);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_an_error_and_not_no_run() {
        let root = tempfile::tempdir().expect("a folder");
        append(root.path(), "x", &record("2026-01-01 10:00")).expect("written");
        fs::write(file(root.path(), "x"), "{\"date\":1}\n").expect("written");
        let error = format!("{:#}", last(root.path(), "x").expect_err("no record"));
        assert!(error.contains("x.jsonl"), "{error}");
    }

    #[test]
    fn a_field_is_found_by_its_name() {
        let text = "processor\t: 0\nmodel name\t: Some CPU\nprocessor\t: 1\n";
        assert_eq!(field(text, "model name", ':'), Some("Some CPU"));
        assert_eq!(field(text, "model", ':'), None);
        assert!(machine().contains(" x "), "{}", machine());
    }
}
