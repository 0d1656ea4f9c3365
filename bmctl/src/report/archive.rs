//! The parts of a report as a tar file (POSIX.1-1988 "ustar"), with an index of what is in it and what could not be had.

use super::scrub;
use serde_json::Value;
use std::fs::File;
use std::io;
use std::path::Path;

#[derive(Debug)]
pub(super) struct Part {
    /// Its path in the archive.
    pub name: String,
    /// What was read, without secrets; or why it could not be.
    pub content: Result<String, String>,
}

impl Part {
    pub(super) fn json(name: &str, read: Result<Value, String>) -> Self {
        let content = read.map(|value| format!("{:#}\n", scrub::json(value)));
        Self { name: name.to_owned(), content: content.map_err(|why| scrub::text(&why)) }
    }

    /// JSON as such, else line by line.
    pub(super) fn text(name: &str, read: Result<String, String>) -> Self {
        match read.as_ref().ok().and_then(|text| serde_json::from_str(text).ok()) {
            Some(value) => Self::json(name, Ok(value)),
            None => Self {
                name: name.to_owned(),
                content: read.map(|text| scrub::text(&text)).map_err(|why| scrub::text(&why)),
            },
        }
    }
}

/// Readable by its owner alone: whoever sends it has looked at it.
pub(super) fn write(file: &Path, parts: &[Part]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(file)?;
    let mut out = tar::Builder::new(file);
    entry(&mut out, "index.txt", &index(parts))?;
    for part in parts {
        if let Ok(content) = &part.content {
            entry(&mut out, &part.name, content)?;
        }
    }
    out.into_inner()?.sync_all()
}

fn index(parts: &[Part]) -> String {
    let line = |part: &Part| match &part.content {
        Ok(content) => format!("{}: {} bytes\n", part.name, content.len()),
        Err(why) => format!("{}: not had: {}\n", part.name, why.trim().replace('\n', " / ")),
    };
    parts.iter().map(line).collect()
}

fn entry(out: &mut tar::Builder<File>, name: &str, content: &str) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_mode(0o600);
    header.set_size(content.len() as u64);
    out.append_data(&mut header, name, content.as_bytes())
}
