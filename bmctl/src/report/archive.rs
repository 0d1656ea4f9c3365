//! The parts of a report as a tar file (POSIX.1-1988 "ustar"), with an index of what is in it and what could not be had.

use super::scrub;
use serde_json::Value;
use std::fs::File;
use std::io::{self, Write};
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
    let mut out = File::options().write(true).create(true).truncate(true).mode(0o600).open(file)?;
    entry(&mut out, "index.txt", &index(parts))?;
    for part in parts {
        if let Ok(content) = &part.content {
            entry(&mut out, &part.name, content)?;
        }
    }
    // Two blocks of zeroes end it.
    out.write_all(&[0; 1024])?;
    out.sync_all()
}

fn index(parts: &[Part]) -> String {
    let line = |part: &Part| match &part.content {
        Ok(content) => format!("{}: {} bytes\n", part.name, content.len()),
        Err(why) => format!("{}: not had: {}\n", part.name, why.trim().replace('\n', " / ")),
    };
    parts.iter().map(line).collect()
}

const BLOCK: usize = 512;

fn entry(out: &mut impl Write, name: &str, content: &str) -> io::Result<()> {
    let mut header = [0_u8; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    if name.len() > 100 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name} is longer than 100 bytes")));
    }
    put(0, name.as_bytes());
    put(100, b"0000600\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{:011o}\0", content.len()).as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    out.write_all(&header)?;
    out.write_all(content.as_bytes())?;
    let rest = content.len().next_multiple_of(BLOCK) - content.len();
    out.write_all(&vec![0; rest])
}
