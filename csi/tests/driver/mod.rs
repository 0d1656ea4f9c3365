//! The real binary, on a pool of its own.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use crate::fixture::Mounted;
use std::{
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

pub struct Driver {
    child: Child,
    pub socket: PathBuf,
}

/// How the driver is started: of another architecture by what EMULATOR names.
fn program() -> Vec<String> {
    std::env::var("EMULATOR").into_iter().chain([env!("CARGO_BIN_EXE_csi").to_owned()]).collect()
}

impl Driver {
    /// With a file pool.
    pub fn start(mounted: &Mounted, flags: &[&str]) -> Driver {
        let pool = format!("--pool=fast={}", mounted.path().display());
        Driver::start_with(mounted.beside(), &[&[pool.as_str()], flags].concat())
    }

    /// Starts the driver with these pools and waits until it answers on its socket, which is in the folder.
    pub fn start_with(folder: &Path, flags: &[&str]) -> Driver {
        let socket = folder.join("csi.sock");
        let program = program();
        let child = Command::new(&program[0])
            .args(&program[1..])
            .arg(format!("--csi-address=unix://{}", socket.display()))
            .args(["--node-id=node-1", "--log-filter=error"])
            .args(flags)
            .spawn()
            .expect("the driver starts");
        let mut driver = Driver { child, socket };
        let deadline = Instant::now() + Duration::from_secs(120);
        while UnixStream::connect(&driver.socket).is_err() {
            if let Some(status) = driver.child.try_wait().expect("the driver is a child") {
                panic!("the driver ended: {status}");
            }
            assert!(Instant::now() < deadline, "no answer on {}", driver.socket.display());
            thread::sleep(Duration::from_millis(10));
        }
        driver
    }

    /// Ends it as kubelet would, and answers whether it ended well.
    pub fn stop(mut self) -> bool {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a signal to a child");
        self.child.wait().expect("the driver is a child").success()
    }

    /// Waits until it ends by itself, and answers whether it ended well.
    pub fn wait(mut self) -> bool {
        self.child.wait().expect("the driver is a child").success()
    }

    /// Ends it in the middle of whatever it does.
    pub fn kill(mut self) {
        self.child.kill().expect("a signal to a child");
        self.child.wait().expect("the driver is a child");
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Both fail when it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
