//! Swap space: a header, and nothing else (Linux, `include/linux/swap.h`, version 1).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Of every kernel that Debian ships; the header has to have its kernel's.
pub const PAGE: usize = 4096;
const MAGIC: &[u8] = b"SWAPSPACE2";
/// Behind the place for a boot loader: version, last page, bad pages, UUID, label.
const INFO: usize = 1024;

/// `unique`: its UUID.
pub fn write(disk: &File, size_bytes: u64, unique: [u8; 16]) -> io::Result<()> {
    let pages = size_bytes / PAGE as u64;
    // As mkswap has it.
    if pages < 10 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{size_bytes} bytes are too few for swap space"),
        ));
    }
    let last = u32::try_from(pages - 1).unwrap_or(u32::MAX);
    let mut page = vec![0; PAGE];
    page[INFO..INFO + 4].copy_from_slice(&1u32.to_le_bytes());
    page[INFO + 4..INFO + 8].copy_from_slice(&last.to_le_bytes());
    page[INFO + 12..INFO + 28].copy_from_slice(&unique);
    page[PAGE - MAGIC.len()..].copy_from_slice(MAGIC);
    disk.write_all_at(&page, 0)?;
    disk.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blkid_finds_swap_space() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(1 << 20).expect("sized");
        write(file.as_file(), 1 << 20, *b"0123456789abcdef").expect("written");
        let found = std::process::Command::new("blkid").args(["-p", "-o", "export"]).arg(file.path()).output();
        let Ok(found) = found else {
            eprintln!("SKIP blkid_finds_swap_space: blkid is not installed (package util-linux)");
            return;
        };
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        assert!(found.contains("TYPE=swap") && found.contains("UUID=30313233-3435-3637-3839-616263646566"), "{found}");
        assert!(write(file.as_file(), 9 * PAGE as u64, [1; 16]).is_err());
    }
}
