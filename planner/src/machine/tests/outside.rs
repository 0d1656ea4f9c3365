//! What goes on beside the controller: agents, BMCs, guests, provisioner; and what can go wrong with them.

use super::world::World;
use crate::host::PowerState;
use crate::machine::observed::uid;
use api::attachment::{FenceIdentity, GuestStatus};
use api::dpu::PowerDomain;
use api::machine::AttachPhase;
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

#[derive(Debug, Clone, Copy)]
pub enum Fault {
    AgentDies(usize),
    DpuReboots(usize),
    BmcGoesAway(usize),
    GuestPowersOff(usize),
    /// Somebody presses the button.
    PressedOn(usize),
    /// Somebody changes the order, as a guest's installer does.
    BootOrderChanged(usize),
    AdministratorConfirmsDown(usize),
    /// A DPU on standby power loses it, whatever its agent was doing.
    DpuPoweredOff(usize),
    DpuPoweredOn(usize),
    ClaimUnbound,
    HolderPodLost(usize),
}

impl World {
    fn nth(&self, n: usize) -> String {
        self.servers.keys().nth(n % self.servers.len()).cloned().unwrap_or_default()
    }

    pub fn suffer(&mut self, fault: Fault) {
        match fault {
            Fault::AgentDies(n) => {
                let name = self.nth(n);
                // Silent, but what it presents is still presented: a partition.
                self.server(&name).agent_lives = false;
            }
            Fault::DpuReboots(n) => {
                let name = self.nth(n);
                self.dpu_boots(&name);
            }
            Fault::BmcGoesAway(n) => {
                let name = self.nth(n);
                self.server(&name).bmc_answers = false;
            }
            Fault::GuestPowersOff(n) => {
                let name = self.nth(n);
                if self.server(&name).power == PowerState::On {
                    self.powered(&name, PowerState::Off);
                }
            }
            Fault::PressedOn(n) => {
                let name = self.nth(n);
                if self.server(&name).power == PowerState::Off {
                    self.powered(&name, PowerState::On);
                }
            }
            Fault::BootOrderChanged(n) => {
                let name = self.nth(n);
                self.server(&name).boot.rotate_left(1);
            }
            Fault::AdministratorConfirmsDown(n) => {
                let name = self.nth(n);
                // An administrator's word is true: the DPU is down, and stays down.
                let server = self.server(&name);
                if !server.agent_lives {
                    server.confirmed_down = true;
                    server.exposed.clear();
                }
            }
            Fault::DpuPoweredOff(n) => {
                let name = self.nth(n);
                if self.dpus[&name].spec.power_domain == PowerDomain::Standby {
                    let server = self.server(&name);
                    (server.dpu_off, server.agent_lives) = (true, false);
                    server.exposed.clear();
                }
            }
            Fault::DpuPoweredOn(n) => {
                let name = self.nth(n);
                let server = self.server(&name);
                if std::mem::take(&mut server.dpu_off) {
                    server.boots += 1;
                    server.agent_lives = true;
                }
            }
            Fault::HolderPodLost(n) => self.lose_holder_pod(n),
            Fault::ClaimUnbound => {
                if let Some(claim) = self.claims.values_mut().next_back() {
                    claim.status = None;
                }
            }
        }
        self.report_dpus();
    }

    /// Everything works again.
    pub fn heal(&mut self) {
        let names: Vec<String> = self.servers.keys().cloned().collect();
        for name in names {
            let shares = self.dpus[&name].spec.power_domain == PowerDomain::Host;
            let server = self.server(&name);
            server.bmc_answers = true;
            if server.confirmed_down || server.dpu_off {
                (server.confirmed_down, server.dpu_off) = (false, false);
                server.boots += 1;
            }
            server.agent_lives = !shares || server.power == PowerState::On;
        }
        self.bind_claims();
        self.report_dpus();
    }

    pub fn server(&mut self, name: &str) -> &mut super::world::Server {
        self.servers.get_mut(name).expect("a server of the model")
    }

    fn dpu_boots(&mut self, name: &str) {
        let server = self.server(name);
        server.boots += 1;
        server.exposed.clear();
    }

    pub fn powered(&mut self, name: &str, state: PowerState) {
        let shares = self.dpus[name].spec.power_domain == PowerDomain::Host;
        let now = self.now;
        let server = self.server(name);
        server.power = state;
        server.guest_since = (state == PowerState::On).then_some(now);
        if shares {
            server.boots += u32::from(state == PowerState::On);
            server.exposed.clear();
            server.agent_lives = state == PowerState::On;
        }
    }

    /// One second in which everything outside goes on.
    pub fn step(&mut self) {
        self.now += SignedDuration::from_secs(1);
        for server in self.servers.values_mut().filter(|server| server.agent_lives) {
            server.heard_at = self.now;
        }
        let names: Vec<String> = self.servers.keys().cloned().collect();
        for name in &names {
            if let Some(state) = self.server(name).pending.take() {
                self.powered(name, state);
            }
        }
        self.report_dpus();
        self.kubelets();
        self.agents();
    }

    fn agents(&mut self) {
        let mut ended = Vec::new();
        let pods = self.disks.values().filter_map(|disk| disk.spec.holder_pod_uid.clone());
        let connected: Vec<String> = pods.filter(|pod| self.is_connected_by(pod)).collect();
        for (key, attachment) in &mut self.disks {
            let server = self.servers.get_mut(&attachment.spec.dpu_name).expect("a DPU of the model");
            if !server.agent_lives || server.confirmed_down {
                continue;
            }
            let own = uid(&attachment.metadata).to_owned();
            if attachment.metadata.deletion_timestamp.is_some() && attachment.spec.release {
                server.exposed.remove(&own);
                ended.push(key.clone());
            } else if attachment.spec.grant.is_some() && attachment.metadata.deletion_timestamp.is_none() {
                let volume = attachment.spec.volume.as_ref().map(|volume| volume.persistent_volume_name.clone());
                let status = attachment.status.get_or_insert_default();
                if attachment.spec.holder_pod_uid.as_ref().is_some_and(|pod| !connected.contains(pod)) {
                    // What the host sees stays, and fails.
                    status.phase = AttachPhase::Failed;
                    continue;
                }
                let epoch = attachment.spec.grant.map(|grant| grant.epoch).unwrap_or_default();
                let (boot_id, identity) = (format!("boot-{}", server.boots), format!("{own}.{epoch}"));
                status.fence = Some(FenceIdentity { boot_id, identity, epoch });
                server.exposed.insert(own, volume);
                status.phase = AttachPhase::Attached;
                status.exposed_boot_id = Some(format!("boot-{}", server.boots));
            }
        }
        for key in ended {
            self.disks.remove(&key);
        }
        let there: Vec<String> = self.disks.values().map(|a| uid(&a.metadata).to_owned()).collect();
        for server in self.servers.values_mut().filter(|server| server.agent_lives) {
            // Orphans: nobody asks for them any more.
            server.exposed.retain(|own, _| there.contains(own));
        }
        let mut ended = Vec::new();
        for (key, attachment) in &mut self.nics {
            let server = &self.servers[&attachment.spec.dpu_name];
            if !server.agent_lives || server.confirmed_down {
                continue;
            }
            if attachment.metadata.deletion_timestamp.is_some() && attachment.spec.release {
                ended.push(key.clone());
            } else if attachment.spec.grant.is_some() && attachment.metadata.deletion_timestamp.is_none() {
                let status = attachment.status.get_or_insert_default();
                status.phase = AttachPhase::Attached;
                status.exposed_boot_id = Some(format!("boot-{}", server.boots));
                let up = server.guest_since.is_some_and(|since| since < self.now);
                status.guest = up.then(|| GuestStatus {
                    first_packet_at: server.guest_since.map(MicroTime),
                    answered_at: Some(MicroTime(self.now)),
                    answered_address: attachment.spec.addresses.first().cloned(),
                });
            }
        }
        for key in ended {
            self.nics.remove(&key);
        }
    }

    /// The DPUs that present a volume, whether or not their agents can be reached; but for those that the storage refuses.
    pub fn presented_by(&self, volume: &str) -> Vec<&str> {
        let accepted =
            |(own, shown): (&String, &Option<String>)| shown.as_deref() == Some(volume) && !self.fenced.contains(own);
        let shows = |server: &super::world::Server| server.exposed.iter().any(accepted);
        self.servers.iter().filter(|(_, server)| shows(server)).map(|(name, _)| name.as_str()).collect()
    }

    pub fn volumes(&self) -> std::collections::BTreeSet<String> {
        self.servers.values().flat_map(|server| server.exposed.values().flatten().cloned()).collect()
    }
}
