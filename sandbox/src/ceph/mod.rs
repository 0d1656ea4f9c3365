//! A Ceph of one node, for tests of real parts: a monitor and an OSD on a file, in one folder and on this machine's
//! loopback addresses, or inside a network namespace ([`Place`]). Both are processes of the caller and end with the value.
//! [`Lab`] is one with the user and the images that tests have.
//!
//! Every client has a key of its own with the rights that the operator guide names ([`Ceph::user`]); there is no manager,
//! which RBD does without.

pub mod daemon;
mod lab;
mod programs;

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Child;
use tokio::time::Instant;
use uuid::Uuid;

pub use daemon::StorageDaemon;
pub use lab::{CLUSTER, Lab, MIB, USER};
pub use programs::Programs;

pub const POOL: &str = "rbd";
/// The OSD's file: thin, as all on it.
const SIZE: u64 = 8 << 30;
/// It takes seven seconds on a machine that has nothing else to do.
const START: Duration = Duration::from_secs(180);
const LOOK: Duration = Duration::from_millis(100);

/// The monitor's own port, where nobody else can have it.
const PORT: u16 = 3300;

/// Where a cluster has its addresses.
#[derive(Clone, Debug)]
pub struct Place {
    address: Ipv4Addr,
    port: u16,
    /// The network namespace's file.
    network: Option<PathBuf>,
}

impl Place {
    /// For clients on this machine.
    pub fn loopback() -> Result<Place> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        Ok(Place { address: Ipv4Addr::LOCALHOST, port, network: None })
    }

    /// On an address that a network namespace has: its clients are there, and wherever that address leads.
    pub fn inside(network: &Path, address: Ipv4Addr) -> Place {
        Place { address, port: PORT, network: Some(network.to_owned()) }
    }
}

pub struct Ceph {
    programs: Programs,
    folder: PathBuf,
    monitor: Child,
    _osd: Child,
}

/// A monitor that answers nobody until this is dropped. Who has an image open reads and writes all the same.
pub struct Mute(Pid);

impl Drop for Mute {
    fn drop(&mut self) {
        // It may have ended meanwhile.
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

impl Ceph {
    /// Brings it up in an empty folder, with one pool, and waits until that takes images.
    pub async fn start(programs: &Programs, folder: &Path, place: &Place) -> Result<Ceph> {
        for part in ["mon", "osd", "log"] {
            std::fs::create_dir_all(folder.join(part))
                .with_context(|| format!("make {part} in {}", folder.display()))?;
        }
        let programs = &programs.inside(place.network.as_deref());
        let setup = Setup { programs, folder };
        std::fs::write(setup.config(), configuration(programs, folder, place)).context("write ceph.conf")?;
        let monitor = setup.monitor(place).await.context("Ceph's monitor")?;
        let osd = setup.osd().await.context("Ceph's OSD")?;
        let ceph = Ceph { programs: programs.clone(), folder: folder.to_owned(), monitor, _osd: osd };
        ceph.run("ceph", ["osd", "pool", "create", POOL, "8"]).await?;
        ceph.run("rbd", ["pool", "init", POOL]).await?;
        Ok(ceph)
    }

    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Stops the monitor where it stands.
    pub fn mute(&self) -> Result<Mute> {
        let pid = self.monitor.id().and_then(|id| i32::try_from(id).ok()).context("the monitor has ended")?;
        kill(Pid::from_raw(pid), Signal::SIGSTOP).context("stop the monitor")?;
        Ok(Mute(Pid::from_raw(pid)))
    }

    /// As clients read it; each finds its key ring through it.
    pub fn config_file(&self) -> PathBuf {
        self.folder.join("ceph.conf")
    }

    /// One of Ceph's programs, as an administrator.
    pub async fn run<A: AsRef<OsStr>>(&self, program: &str, arguments: impl IntoIterator<Item = A>) -> Result<String> {
        self.programs.run(program, &self.config_file(), arguments).await
    }

    /// A client with the rights of one that uses images, as the operator guide names them.
    pub async fn user(&self, name: &str) -> Result<()> {
        let (entity, ring) = (format!("client.{name}"), format!("client.{name}.keyring"));
        let pool = format!("profile rbd pool={POOL}");
        let said =
            self.run("ceph", ["auth", "get-or-create", &entity, "mon", "profile rbd", "osd", pool.as_str()]).await?;
        std::fs::write(self.folder.join(ring), said).context("write the key ring")
    }
}

/// Before it runs.
struct Setup<'a> {
    programs: &'a Programs,
    folder: &'a Path,
}

impl Setup<'_> {
    fn config(&self) -> PathBuf {
        self.folder.join("ceph.conf")
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    async fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        self.programs.run(program, &self.config(), arguments).await
    }

    async fn monitor(&self, place: &Place) -> Result<Child> {
        let (admin, own, map) = (self.path("client.admin.keyring"), self.path("mon.a.keyring"), self.path("monmap"));
        let all = ["--cap", "mon", "allow *", "--cap", "osd", "allow *"];
        let create = ["--create-keyring", admin.as_str(), "--gen-key", "-n", "client.admin"];
        self.run("ceph-authtool", &[create.as_slice(), &all].concat()).await?;
        let create = ["--create-keyring", own.as_str(), "--gen-key", "-n", "mon.", "--cap", "mon", "allow *"];
        self.run("ceph-authtool", &create).await?;
        self.run("ceph-authtool", &[own.as_str(), "--import-keyring", admin.as_str()]).await?;
        let address = format!("[v2:{}:{}]", place.address, place.port);
        let fsid = self.run("ceph-conf", &["--lookup", "fsid"]).await?;
        let fsid = fsid.trim();
        self.run("monmaptool", &["--create", "--fsid", fsid, "--addv", "a", &address, &map]).await?;
        self.run("ceph-mon", &["-i", "a", "--mkfs", "--monmap", &map, "--keyring", &own]).await?;
        let mut process = self.spawn("ceph-mon", "a")?;
        self.until("answers", &mut process, "mon", &["status"], |_| true).await?;
        Ok(process)
    }

    async fn osd(&self) -> Result<Child> {
        let uuid = Uuid::new_v4().to_string();
        self.run("ceph", &["osd", "new", &uuid]).await?;
        let rights = ["mon", "allow profile osd", "osd", "allow *"];
        let ring = self.run("ceph", &[["auth", "get-or-create", "osd.0"].as_slice(), &rights].concat()).await?;
        std::fs::write(self.folder.join("osd.0.keyring"), ring).context("write its key ring")?;
        self.run("ceph-osd", &["-i", "0", "--mkfs", "--osd-uuid", &uuid]).await?;
        let mut process = self.spawn("ceph-osd", "0")?;
        self.until("is up", &mut process, "osd", &["osd", "stat"], |said| said.contains("1 up")).await?;
        Ok(process)
    }

    fn spawn(&self, program: &str, name: &str) -> Result<Child> {
        let said = File::create(self.folder.join("log").join(format!("{program}.out")))?;
        let mut command = self.programs.command(program, &self.config());
        command.args(["-i", name, "-f"]).stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
        command.spawn().with_context(|| format!("start {program}"))
    }

    async fn until(
        &self,
        what: &str,
        process: &mut Child,
        name: &str,
        arguments: &[&str],
        is_done: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let begun = Instant::now();
        loop {
            let said = self.run("ceph", &[&["--connect-timeout", "5"], arguments].concat()).await;
            if said.as_deref().is_ok_and(&is_done) {
                return Ok(());
            }
            let log = || std::fs::read_to_string(self.path(&format!("log/ceph-{name}.out"))).unwrap_or_default();
            if let Some(status) = process.try_wait()? {
                bail!("it ended ({status}): {}", log());
            }
            if begun.elapsed() > START {
                bail!("not within {START:?}: that it {what}; {said:?}; {}", log());
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Ceph's monitor ends by itself (ENOSPC) where less than 5 % of the disk is free: of a developer's, that may be many gigabytes.
fn configuration(programs: &Programs, folder: &Path, place: &Place) -> String {
    let (folder, address, port) = (folder.display(), place.address, place.port);
    let mut text = format!(
        "[global]
fsid = {}
mon_host = [v2:{address}:{port}/0]
public_addr = {address}
cluster_addr = {address}
auth_allow_insecure_global_id_reclaim = false
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_crush_chooseleaf_type = 0
osd_pool_default_pg_autoscale_mode = off
mon_allow_pool_size_one = true
run_dir = {folder}
log_file = {folder}/log/$name.log
mon_cluster_log_file = {folder}/log/cluster.log
admin_socket = {folder}/$name.$pid.asok
keyring = {folder}/$name.keyring
crash_dir = {folder}/log
mon_data = {folder}/mon
mon_data_avail_crit = 1
osd_data = {folder}/osd
bluestore_block_size = {SIZE}
bluestore_fsck_on_mount = false
osd_mclock_skip_benchmark = true
paxos_propose_interval = 0.1
",
        Uuid::new_v4()
    );
    for (name, place) in programs.plugins() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name} = {}", place.display());
    }
    text
}
