//! The BMCs as one process reaches them: each has one session at a time, and answers one request at a time.

use super::host::{DpuBmc, Host, HostBmc};
use super::process::Process;
use async_trait::async_trait;
use controller::bmc::{BmcFactory, RedfishEndpoint};
use planner::host::{BootChange, HostObserved, MediumChange, PowerAction};
use ports::{Bmc, ErrorClass, PortError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

fn lost<T>() -> Result<T, PortError> {
    Err(PortError::new(ErrorClass::Unreachable, "no answer in time"))
}

fn busy<T>() -> Result<T, PortError> {
    Err(PortError::new(ErrorClass::Busy, "not now"))
}

/// How many there are of each name.
type Counts = Arc<Mutex<BTreeMap<String, u32>>>;

/// One of them; more than one at a time is a violation.
struct Only {
    counts: Counts,
    name: String,
}

impl Only {
    fn of(counts: &Counts, name: &str, process: &Process) -> Self {
        let count = {
            let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            let count = counts.entry(name.to_owned()).or_default();
            *count += 1;
            *count
        };
        if count > 1 {
            process.scene.violated(format!("{}: {count} times at once: {name}", process.name));
        }
        Self { counts: counts.clone(), name: name.to_owned() }
    }
}

impl Drop for Only {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.entry(self.name.clone()).and_modify(|count| *count -= 1);
    }
}

/// Opens the BMC whose address is the host's name, or that of the DPU in it.
pub struct Bmcs {
    process: Arc<Process>,
    counts: Counts,
}

impl Bmcs {
    pub fn new(process: Arc<Process>) -> Self {
        Self { process, counts: Counts::default() }
    }

    fn session<B>(&self, address: &str, bmc: B) -> Session<B> {
        let open = Only::of(&self.counts, &format!("session with {address}"), &self.process);
        Session { process: self.process.clone(), bmc, open }
    }
}

impl BmcFactory for Bmcs {
    fn redfish(&self, endpoint: &RedfishEndpoint) -> Result<Arc<dyn Bmc>, PortError> {
        let address = &endpoint.host;
        let hosts = &self.process.scene.hosts;
        if let Some(host) = hosts.iter().find(|host| host.dpu_name == *address) {
            return Ok(Arc::new(self.session(address, DpuBmc(host.clone()))));
        }
        let host = hosts.iter().find(|host| host.name == *address);
        let host = host.ok_or_else(|| PortError::new(ErrorClass::Unreachable, format!("no host {address}")))?;
        host.opened();
        Ok(Arc::new(self.session(address, HostBmc(host.clone()))))
    }
}

struct Session<B> {
    process: Arc<Process>,
    bmc: B,
    open: Only,
}

impl<B: Bmc> Session<B> {
    fn request(&self) -> Only {
        Only::of(&self.open.counts, &format!("request in a {}", self.open.name), &self.process)
    }

    async fn read(&self) -> Result<HostObserved, PortError> {
        let _request = self.request();
        self.process.travel().await;
        let seen = self.bmc.observe().await;
        self.process.travel().await;
        seen
    }
}

/// A DPU's own BMC: read, and never commanded.
#[async_trait]
impl Bmc for Session<DpuBmc> {
    async fn observe(&self) -> Result<HostObserved, PortError> {
        self.read().await
    }

    async fn power(&self, action: PowerAction) -> Result<(), PortError> {
        self.bmc.power(action).await
    }

    async fn configure_boot(&self, change: &BootChange) -> Result<(), PortError> {
        self.bmc.configure_boot(change).await
    }

    async fn change_medium(&self, change: &MediumChange) -> Result<(), PortError> {
        self.bmc.change_medium(change).await
    }
}

impl Session<HostBmc> {
    fn host(&self) -> Arc<Host> {
        self.bmc.0.clone()
    }
}

#[async_trait]
impl Bmc for Session<HostBmc> {
    async fn observe(&self) -> Result<HostObserved, PortError> {
        self.read().await
    }

    async fn power(&self, action: PowerAction) -> Result<(), PortError> {
        let _request = self.request();
        let (host, scene) = (self.host(), self.process.scene.clone());
        let act = async move {
            scene.before_power(&host, action);
            HostBmc(host).power(action).await
        };
        self.process.effect(&format!("{} {action:?}", self.bmc.0.name), act, lost, busy).await
    }

    async fn configure_boot(&self, change: &BootChange) -> Result<(), PortError> {
        let _request = self.request();
        let (host, wanted) = (self.host(), change.clone());
        let act = async move { HostBmc(host).configure_boot(&wanted).await };
        self.process.effect(&format!("{} {change:?}", self.bmc.0.name), act, lost, busy).await
    }

    async fn change_medium(&self, change: &MediumChange) -> Result<(), PortError> {
        let _request = self.request();
        let (host, wanted) = (self.host(), change.clone());
        let act = async move { HostBmc(host).change_medium(&wanted).await };
        self.process.effect(&format!("{} {change}", self.bmc.0.name), act, lost, busy).await
    }
}
