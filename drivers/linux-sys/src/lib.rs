//! System calls that no kept crate wraps, each as a safe function. What `rustix` or `nix` have (sizes, mounts, modules,
//! a restart) is called there.

pub mod ata;
pub mod kexec;
pub mod nvme;

use nix::libc;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

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

/// `_IOW('T', 202, int)` of `linux/if_tun.h`.
mod tunsetiff {
    nix::ioctl_write_ptr_bad!(
        attach,
        nix::request_code_write!(b'T', 202, size_of::<nix::libc::c_int>()),
        nix::libc::ifreq
    );
}

/// Creates a tap device in the network namespace of the calling thread: what the device is sent is read from the file, frame by frame,
/// and what is written to the file is what the device receives. Neither waits. The device is deleted with the file.
pub fn tap(name: &str) -> io::Result<File> {
    if name.is_empty() || name.len() >= libc::IFNAMSIZ {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("`{name}` is no name of a network device")));
    }
    let file = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    // SAFETY: `ifreq` is plain data, of which zeroes are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which lives until the call has returned; the descriptor is open.
    unsafe { tunsetiff::attach(file.as_raw_fd(), &request) }?;
    Ok(file)
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
