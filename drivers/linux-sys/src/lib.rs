//! System calls that no kept crate wraps, each as a safe function. What `rustix` or `nix` have (sizes, mounts, modules,
//! a restart) is called there.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `_IO(0x12, 95)` of `linux/fs.h`.
mod blkrrpart {
    nix::ioctl_none!(reread, 0x12, 95);
}

/// Has the kernel read the partition table of a whole disk again. `ResourceBusy` while one of its partitions is in use.
pub fn reread_partitions(disk: &File) -> io::Result<()> {
    // SAFETY: BLKRRPART takes no argument and touches no memory of ours. The descriptor is open for as long as `disk` is
    // borrowed; one that is no block device is answered with an error.
    unsafe { blkrrpart::reread(disk.as_raw_fd()) }.map(drop).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_disk_is_an_error() {
        let file = tempfile::tempfile().expect("a file");
        let error = reread_partitions(&file).expect_err("no disk");
        assert!(error.raw_os_error().is_some(), "{error}");
    }
}
