//! Writes a file that others read while it is written: whoever opens it sees all of it, or what was there before.

use std::fs;
use std::io::Result;
use std::path::Path;

/// Writes `content` beside `path` and renames it into place. One writer at a time: a second would take its file.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    let part = path.with_extension("part");
    fs::write(&part, content)?;
    fs::rename(&part, path)
}
