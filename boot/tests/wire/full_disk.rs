//! A disk of the node that is full. The service writes no file but its log, and that is lost: servers are booted all the same.

use super::MAC;
use super::site::{self, ApiServer, US, client, field, path, udhcpc};
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

/// A file system of one page.
const SIZE: usize = 4096;

/// Where the log is; in the mount namespace of this test, and away with this value.
struct Full<'a>(&'a Path);

impl<'a> Full<'a> {
    fn mount(folder: &'a Path) -> Self {
        std::fs::create_dir(folder).expect("made");
        let size = format!("size={SIZE}");
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder).status();
        assert!(done.expect("mount starts").success(), "a small file system at {}", folder.display());
        let full = Self(folder);
        std::fs::write(folder.join("all"), [0; SIZE]).expect("there is room");
        let error = std::fs::write(folder.join("more"), [0]).expect_err("it is full");
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        full
    }
}

impl Drop for Full<'_> {
    fn drop(&mut self) {
        // Lazily: the service may have its log open, where the test has failed.
        let done = Command::new("umount").arg("-l").arg(self.0).status();
        done.expect("umount starts");
    }
}

pub async fn stops_nothing(api: &ApiServer, dir: &tempfile::TempDir, arguments: &[String]) {
    let folder = path(dir, "full");
    let full = Full::mount(&folder);
    let log = full.0.join("boot.log");
    let service = site::boot(&api.kubeconfig, arguments, US, &log).await;
    let lease = udhcpc(dir, MAC, &["-V", "PXEClient:Arch:00007:UNDI:003000", "-x", "0x5d:0007", "-x", "0x5e:010300"]);
    let lease = lease.await.expect("a lease");
    assert_eq!(field(&lease, "ip"), "10.88.0.50");
    let set = client(&["ip", "addr", "replace", "10.88.0.50/24", "dev", "eth0"]).await;
    assert!(set.status.success(), "{set:?}");
    let got = path(dir, "got-of-a-full-disk").display().to_string();
    let fetched = client(&["busybox", "tftp", "-g", "-r", "ipxe.efi", "-l", &got, US]).await;
    assert!(fetched.status.success(), "{fetched:?}");
    let kernel = format!("http://{US}:7080/osie/{MAC}/vmlinuz-x86_64");
    let fetched = client(&["curl", "-sf", "-o", "/dev/null", "-w", "%{size_download}", &kernel]).await;
    assert_eq!(String::from_utf8_lossy(&fetched.stdout), "700000", "{fetched:?}");
    assert_eq!(std::fs::metadata(&log).expect("a log").len(), 0, "there was no room for a line");
    let unset = client(&["ip", "addr", "del", "10.88.0.50/24", "dev", "eth0"]).await;
    assert!(unset.status.success(), "{unset:?}");
    drop(service);
}
