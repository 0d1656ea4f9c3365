//! What is not in the API server: storage, servers with their DPUs. And the one thing that must always be so.

use super::time::Ms;
use api::dpu::PowerDomain;
use planner::agent::{Entry, Function, Import};
use planner::exposure::{Exposure, ExposureId};
use planner::host::PowerState;
use std::collections::{BTreeMap, BTreeSet};

pub const SLOT: &str = "Boot0003";

/// How the storage of a volume can refuse a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fence {
    /// Lets in who is on its list, and never one again that it was told to refuse.
    TargetAcl,
    /// Lets in whom it does not refuse.
    Blocklist,
    None,
    /// None, and connected by kubelet for a pod.
    Kubelet,
}

impl Fence {
    /// As the DPUs declare it.
    pub fn kind(self) -> &'static str {
        match self {
            Self::TargetAcl => "TargetAcl",
            Self::Blocklist => "OwnDriver",
            Self::None | Self::Kubelet => "None",
        }
    }

    pub fn is_told(self) -> bool {
        matches!(self, Self::TargetAcl | Self::Blocklist)
    }
}

#[derive(Debug)]
pub struct Volume {
    pub fence: Fence,
    /// Kubernetes attaches it before a kubelet connects it.
    pub attaches: bool,
    admitted: BTreeSet<ExposureId>,
    /// This epoch and all before are refused.
    refused: u64,
}

impl Volume {
    pub fn new(fence: Fence, attaches: bool) -> Self {
        Self { fence, attaches, admitted: BTreeSet::new(), refused: 0 }
    }

    pub fn accepts(&self, id: &ExposureId) -> bool {
        id.epoch > self.refused && (self.fence != Fence::TargetAcl || self.admitted.contains(id))
    }

    pub fn admit(&mut self, id: &ExposureId) -> bool {
        let may = id.epoch > self.refused;
        if may && self.fence == Fence::TargetAcl {
            self.admitted.insert(id.clone());
        }
        may
    }

    pub fn dismiss(&mut self, id: &ExposureId) {
        self.admitted.remove(id);
    }

    pub fn refuse(&mut self, id: &ExposureId) {
        self.refused = self.refused.max(id.epoch);
    }
}

/// A volume on a DPU.
#[derive(Debug, Clone)]
pub struct Connection {
    pub handle: String,
    /// Of the one request that made it: a disk stands on this name, and there is never another connection of it.
    pub name: u64,
    /// The UID of the pod by which kubelet connected it: without that there is no device.
    pub pod: Option<String>,
}

/// A server and the DPU in it.
#[derive(Debug)]
pub struct Server {
    pub domain: PowerDomain,
    pub power: PowerState,
    /// Grows with every power action: what was begun before it does not end.
    pub turn: u64,
    pub order: Vec<String>,
    pub dpu_on: bool,
    /// Somebody took the DPU's power away, and has to give it back.
    pub unplugged: bool,
    pub boot: u32,
    /// When the DPU went on or off, for its own BMC, which looks only now and then.
    pub turned: Vec<(Ms, bool)>,
    /// An administrator has tainted its Node.
    pub tainted: bool,
    /// Nothing goes from this node to the API server before.
    pub cut_until: Ms,
    /// Neither BMC answers before.
    pub bmcs_down_until: Ms,
    /// `renewTime` of the agent's Lease.
    pub beat: Ms,
    /// What a reboot of the DPU forgets.
    pub record: BTreeMap<String, Entry>,
    pub released: BTreeSet<ExposureId>,
    pub seeds: BTreeSet<String>,
    pub shown: Vec<Exposure>,
    pub connected: BTreeMap<ExposureId, Connection>,
    /// By the UID of a pod: the volume that kubelet has connected for it.
    pub pods: BTreeMap<String, String>,
    /// By the UID of a pod: what its agent connected by it.
    pub used: BTreeMap<String, ExposureId>,
}

impl Server {
    pub fn new(domain: PowerDomain) -> Self {
        let on = domain == PowerDomain::Standby;
        Self {
            domain,
            power: PowerState::Off,
            turn: 0,
            order: ["Boot0001", SLOT].map(str::to_owned).to_vec(),
            dpu_on: on,
            unplugged: false,
            boot: 1,
            turned: vec![(0, on)],
            tainted: false,
            cut_until: 0,
            bmcs_down_until: 0,
            beat: 0,
            record: BTreeMap::new(),
            released: BTreeSet::new(),
            seeds: BTreeSet::new(),
            shown: Vec::new(),
            connected: BTreeMap::new(),
            pods: BTreeMap::new(),
            used: BTreeMap::new(),
        }
    }

    pub fn boot_id(&self) -> String {
        format!("boot-{}", self.boot)
    }

    /// Nothing is presented or connected any more, and `/run` is empty, if it `forgets`.
    pub fn dpu_goes(&mut self, now: Ms, forgets: bool) {
        self.boot += 1;
        self.dpu_on = false;
        self.turned.push((now, false));
        if forgets {
            self.record.clear();
            self.released.clear();
        }
        self.seeds.clear();
        self.target_crashes();
        self.pods.clear();
        self.used.clear();
    }

    pub fn target_crashes(&mut self) {
        self.shown.clear();
        self.connected.clear();
    }

    pub fn dpu_comes(&mut self, now: Ms) {
        self.dpu_on = true;
        self.turned.push((now, true));
    }

    /// As the DPU's own BMC knows it: as it was at that time.
    pub fn dpu_was_on(&self, at: Ms) -> bool {
        self.turned.iter().rev().find(|(since, _)| *since <= at).is_some_and(|(_, on)| *on)
    }

    /// Everybody on this DPU who may write to the volume now or without asking anybody else: what the host sees, what
    /// the record would connect and present anew, and what kubelet has not let go of yet.
    fn writers<'a>(&'a self, handle: &'a str) -> impl Iterator<Item = &'a ExposureId> {
        let of_it = move |id: &ExposureId| self.connected.get(id).is_some_and(|connected| connected.handle == handle);
        let shown = self.shown.iter().map(|exposure| &exposure.id).filter(move |id| of_it(id));
        let claimed = self.record.values().filter(move |entry| self.may_connect(entry, handle)).map(|entry| &entry.id);
        let by_pod = self.used.iter().filter(move |(pod, _)| self.pods.get(*pod).is_some_and(|of| of == handle));
        shown.chain(claimed).chain(by_pod.map(|(_, id)| id)).filter(|_| self.dpu_on)
    }

    fn may_connect(&self, entry: &Entry, handle: &str) -> bool {
        let (Function::Disk { volume, .. } | Function::Import(Import { volume, .. })) = &entry.function else {
            return false;
        };
        let by_pod = volume.holder.as_ref().is_none_or(|pod| self.pods.contains_key(&pod.uid));
        volume.handle == handle && by_pod
    }
}

#[derive(Debug)]
pub struct Site {
    /// Of the volumes that agents connect themselves.
    pub native: Fence,
    pub volumes: BTreeMap<String, Volume>,
    /// By the name of the DPU.
    pub servers: BTreeMap<String, Server>,
}

impl Site {
    pub fn server(&mut self, dpu: &str) -> &mut Server {
        self.servers.get_mut(dpu).expect("a DPU of this site")
    }

    /// The invariant: at most one identity that the storage accepts may write a volume.
    pub fn check(&self) -> Result<(), String> {
        for (handle, volume) in &self.volumes {
            let mut first: Option<(&str, &ExposureId)> = None;
            for (name, server) in &self.servers {
                for id in server.writers(handle).filter(|id| volume.accepts(id)) {
                    match first {
                        None => first = Some((name, id)),
                        Some((other, there)) if (other, there) != (name, id) => {
                            return Err(format!(
                                "{handle} may be written by {there:?} on {other} and by {id:?} on {name}"
                            ));
                        }
                        Some(_) => {}
                    }
                }
            }
        }
        Ok(())
    }
}
