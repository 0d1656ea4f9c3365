//! Another kernel, loaded to be started in the place of this one: `kexec_file_load(2)`.

use nix::libc;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Loads a kernel, and with it an initramfs if there is one. It starts when the machine is restarted by kexec; one that was loaded
/// before is replaced.
pub fn load(kernel: &File, initramfs: Option<&File>, arguments: &CStr) -> io::Result<()> {
    let flags = if initramfs.is_none() { libc::KEXEC_FILE_NO_INITRAMFS } else { 0 };
    let initramfs = initramfs.map_or(-1, AsRawFd::as_raw_fd);
    let length = arguments.to_bytes_with_nul().len();
    // SAFETY: the kernel reads `length` bytes of `arguments`, its terminating zero the last of them, and writes no memory of ours. Both
    // descriptors are open for as long as their files are borrowed; the second is not looked at when the flags say that there is none.
    let done = unsafe {
        libc::syscall(
            libc::SYS_kexec_file_load,
            libc::c_long::from(kernel.as_raw_fd()),
            libc::c_long::from(initramfs),
            length,
            arguments.as_ptr(),
            libc::c_long::from(flags),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_kernel_is_an_error() {
        let file = tempfile::tempfile().expect("a file");
        for initramfs in [None, Some(&file)] {
            let error = load(&file, initramfs, c"quiet").expect_err("an empty file");
            assert!(error.raw_os_error().is_some_and(|number| number > 0), "{error}");
        }
    }
}
