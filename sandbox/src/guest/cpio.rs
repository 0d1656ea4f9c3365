//! The archive format of an initramfs ("newc" cpio): enough of it to write one.

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const SYMLINK: u32 = 0o120_777;

/// An archive under construction. Parents must be added before what is in them.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    pub fn folder(&mut self, path: &str) {
        self.entry(path, DIRECTORY, &[]);
    }

    pub fn program(&mut self, path: &str, content: &[u8]) {
        self.entry(path, PROGRAM, content);
    }

    pub fn link(&mut self, path: &str, target: &str) {
        self.entry(path, SYMLINK, target.as_bytes());
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).expect("initramfs files are far below 4 GiB");
        let name_size = u32::try_from(path.len() + 1).expect("initramfs paths are short");
        let links = 1;
        // inode, mode, uid, gid, links, mtime, size, device (2), special device (2), length of the name, checksum
        let fields = [self.entries, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_the_archive_ends_with_its_trailer() {
        let mut archive = Archive::default();
        archive.folder("bin");
        archive.program("bin/x", b"12345");
        archive.link("bin/y", "x");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        assert!(bytes.starts_with(b"070701"));
        assert!(bytes.windows(10).any(|window| window == b"TRAILER!!!"));
        let second = bytes.windows(6).skip(1).position(|window| window == b"070701").expect("second entry") + 1;
        assert_eq!(second % 4, 0);
    }
}
