//! Swap space: a header, and nothing else (Linux, `include/linux/swap.h`, version 1). The header is the first page, its signature that page's last
//! bytes, and its count is of pages: so it is for kernels with pages of one size. Another kernel does not know it for swap space.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What Linux has on any machine.
const PAGES: [usize; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
const MAGIC: &[u8] = b"SWAPSPACE2";
/// Behind the place for a boot loader: version, last page, bad pages, UUID, label.
const INFO: usize = 1024;

/// `page`: of the kernel that is to swap there. `unique`: its UUID.
pub fn write(disk: &File, size_bytes: u64, page: usize, unique: [u8; 16]) -> io::Result<()> {
    let refuse = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    if !PAGES.contains(&page) {
        return refuse(format!("{page} bytes are no size of pages: they have 4096, 8192, 16384, 32768 or 65536"));
    }
    let pages = size_bytes / page as u64;
    // As mkswap has it.
    if pages < 10 {
        return refuse(format!("{size_bytes} bytes are too few for swap space with pages of {page} bytes"));
    }
    let last = u32::try_from(pages - 1).unwrap_or(u32::MAX);
    // As far as the signature of any size is looked for: none of before may be left.
    let longest = PAGES.into_iter().max().unwrap_or(page);
    let mut header = vec![0; longest.min(usize::try_from(size_bytes).unwrap_or(longest))];
    header[INFO..INFO + 4].copy_from_slice(&1u32.to_ne_bytes());
    header[INFO + 4..INFO + 8].copy_from_slice(&last.to_ne_bytes());
    header[INFO + 12..INFO + 28].copy_from_slice(&unique);
    header[page - MAGIC.len()..page].copy_from_slice(MAGIC);
    disk.write_all_at(&header, 0)?;
    disk.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const MIB: u64 = 1 << 20;

    /// What blkid says, if it is there.
    fn seen(test: &str, file: &std::path::Path) -> Option<String> {
        let Ok(found) = Command::new("blkid").args(["-p", "-o", "export"]).arg(file).output() else {
            eprintln!("SKIP {test}: blkid is not installed (package util-linux)");
            return None;
        };
        Some(String::from_utf8_lossy(&found.stdout).into_owned())
    }

    #[test]
    fn blkid_finds_swap_space_for_every_size_of_pages() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(MIB).expect("sized");
        // Down and up: no signature of the size before is left.
        for page in PAGES.into_iter().rev().chain(PAGES) {
            write(file.as_file(), MIB, page, *b"0123456789abcdef").expect("written");
            let Some(found) = seen("blkid_finds_swap_space_for_every_size_of_pages", file.path()) else { return };
            let is_it = found.contains("TYPE=swap") && found.contains("UUID=30313233-3435-3637-3839-616263646566");
            assert!(is_it, "{page}: {found}");
            let bytes = std::fs::read(file.path()).expect("read");
            let signed = PAGES.into_iter().filter(|page| bytes[page - MAGIC.len()..*page] == *MAGIC);
            assert_eq!(signed.collect::<Vec<_>>(), [page]);
        }
    }

    /// The reference, for pages of the machine and for others.
    #[test]
    fn the_header_is_what_mkswap_writes() {
        for page in PAGES {
            let (ours, theirs) = (tempfile::NamedTempFile::new(), tempfile::NamedTempFile::new());
            let (ours, theirs) = (ours.expect("a file"), theirs.expect("a file"));
            for file in [&ours, &theirs] {
                file.as_file().set_len(MIB).expect("sized");
            }
            let mut mkswap = Command::new("mkswap");
            mkswap.args(["-p", &page.to_string(), "-U", "30313233-3435-3637-3839-616263646566"]).arg(theirs.path());
            let Ok(made) = mkswap.output() else {
                eprintln!("SKIP the_header_is_what_mkswap_writes: mkswap is not installed (package util-linux)");
                return;
            };
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            write(ours.as_file(), MIB, page, *b"0123456789abcdef").expect("written");
            let read = |file: &tempfile::NamedTempFile| std::fs::read(file.path()).expect("read");
            assert!(read(&ours) == read(&theirs), "pages of {page} bytes: another header than mkswap's");
        }
    }

    #[test]
    fn what_can_be_no_swap_space_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        for (size, page) in [(9 * 4096, 4096), (9 * 65536, 65536), (MIB, 0), (MIB, 2048), (MIB, 12288), (MIB, 1 << 20)]
        {
            assert!(write(file.as_file(), size, page, [1; 16]).is_err(), "{size} bytes, pages of {page}");
        }
    }
}
