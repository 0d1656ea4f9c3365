//! What goes on beside the controller: agents, BMCs, guests, provisioner; and what can go wrong with them.

use super::requests::{Outside, is_used};
use super::world::{World, server_of};
use api::attachment::{FenceIdentity, GuestStatus};
use api::conditions::{self, ConditionStatus};
use api::dpu::PowerDomain;
use api::labels;
use api::machine::AttachPhase;
use api::network::Programmed;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use model::{Objects, names};
use planner::host::{BootChange, PowerAction, PowerState};
use planner::machine::observed::uid;
use planner::machine::plan::{Disruptive, PowerOrder};
use planner::machine::{Observed, Plan};
use planner::meta::has_finalizer;

fn key(meta: &ObjectMeta) -> (String, String) {
    let (namespace, name) = names(meta);
    (namespace.to_owned(), name.to_owned())
}

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
                if self.objects.dpus[&name].spec.power_domain == PowerDomain::Standby {
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
                if let Some(claim) = self.objects.claims.values_mut().next_back() {
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
            let shares = self.objects.dpus[&name].spec.power_domain == PowerDomain::Host;
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
        let shares = self.objects.dpus[&name.to_owned()].spec.power_domain == PowerDomain::Host;
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
        self.network();
    }

    /// What the controller does beside for VNics (controller/src/network): it assigns their addresses, programs their ports, and
    /// releases those that nobody uses.
    fn network(&mut self) {
        let now = self.now;
        for vnic in self.objects.vnics.values_mut() {
            let addresses = vnic.spec.addresses.clone();
            let status = vnic.status.get_or_insert_default();
            status.addresses = addresses;
            let (assigned, done) = (conditions::ADDRESSES_ASSIGNED, ConditionStatus::True);
            conditions::set(&mut status.conditions, assigned, done, "Assigned", "", None, now);
            status.programmed = Some(Programmed { epoch: Some(status.grant.epoch), ..Programmed::default() });
            if vnic.metadata.deletion_timestamp.is_some() && !is_used(&vnic.metadata) {
                vnic.metadata.finalizers = None;
            }
        }
        self.objects.vnics.retain(|vnic| {
            vnic.metadata.deletion_timestamp.is_none() || vnic.metadata.finalizers.iter().flatten().count() > 0
        });
    }

    fn agents(&mut self) {
        let mut ended = Vec::new();
        let pods = self.disks.values().filter_map(|disk| disk.spec.holder_pod_uid.clone());
        let connected: Vec<String> = pods.filter(|pod| self.is_connected_by(pod)).collect();
        for attachment in self.objects.disks.values_mut() {
            let server = self.servers.get_mut(&attachment.spec.dpu_name).expect("a DPU of the model");
            if !server.agent_lives || server.confirmed_down {
                continue;
            }
            let own = uid(&attachment.metadata).to_owned();
            if attachment.metadata.deletion_timestamp.is_some() && attachment.spec.release {
                server.exposed.remove(&own);
                ended.push(key(&attachment.metadata));
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
            self.objects.disks.remove(&key);
        }
        let there: Vec<String> = self.objects.disks.values().map(|a| uid(&a.metadata).to_owned()).collect();
        for server in self.servers.values_mut().filter(|server| server.agent_lives) {
            // Orphans: nobody asks for them any more.
            server.exposed.retain(|own, _| there.contains(own));
        }
        let mut ended = Vec::new();
        for attachment in self.objects.nics.values_mut() {
            let server = &self.servers[&attachment.spec.dpu_name];
            if !server.agent_lives || server.confirmed_down {
                continue;
            }
            if attachment.metadata.deletion_timestamp.is_some() && attachment.spec.release {
                // What the host holds on to keeps its finalizer.
                if !has_finalizer(&attachment.metadata, labels::FINALIZER_EXPOSED) {
                    continue;
                }
                ended.push(key(&attachment.metadata));
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
            self.objects.nics.remove(&key);
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

impl Outside for World {
    fn objects(&mut self) -> &mut Objects {
        &mut self.objects
    }

    fn now(&self) -> Time {
        Time(self.now)
    }

    fn refuse(&mut self, attachment_uid: &str) {
        self.fenced.insert(attachment_uid.to_owned());
    }

    fn refuses(&self, attachment_uid: &str) -> bool {
        self.fenced.contains(attachment_uid)
    }

    fn lives(&self, dpu_namespace: &str) -> bool {
        let own = |name: &&String| api::names::dpu_namespace(name) == dpu_namespace;
        self.servers.iter().any(|(name, server)| own(&name) && server.agent_lives)
    }

    fn disrupt(&mut self, hardware: &str, disruptive: &Disruptive) {
        let now = self.now;
        let server = self.server(&server_of(hardware));
        if !server.bmc_answers {
            return;
        }
        match disruptive {
            Disruptive::ConfigureBoot(BootChange::First { reference }) => {
                server.boot.retain(|other| other != reference);
                server.boot.insert(0, reference.clone());
            }
            Disruptive::ConfigureBoot(BootChange::Restore { order }) => server.boot.clone_from(order),
            Disruptive::ConfigureBoot(change) => panic!("{change:?} was planned"),
            Disruptive::ChangeMedium(change) => panic!("{change} was planned, of a server with a DPU"),
            Disruptive::Power(PowerOrder { action, .. }) => {
                server.accepted_at = Some(now);
                match (action, server.power) {
                    (PowerAction::On, PowerState::Off) => {
                        server.pending = Some(PowerState::On);
                        server.power_ons += 1;
                    }
                    (PowerAction::SoftOff | PowerAction::ForceOff, PowerState::On) => {
                        server.pending = Some(PowerState::Off);
                    }
                    (PowerAction::WarmReset, PowerState::On) => {
                        server.resets += 1;
                        server.guest_since = Some(now);
                    }
                    _ => {}
                }
            }
        }
    }

    fn check(&self, deleted: Option<&PersistentVolumeClaim>) {
        for volume in self.volumes() {
            let by = self.presented_by(&volume);
            assert!(by.len() <= 1, "volume {volume} is presented by {by:?}");
        }
        if let Some(volume) = deleted.and_then(|claim| claim.spec.as_ref()?.volume_name.as_deref()) {
            assert!(self.presented_by(volume).is_empty(), "a claim that is presented is deleted");
        }
    }
}

impl World {
    /// Everything of a plan, or the first `requests` requests of it: a crash.
    pub fn carry_out(&mut self, seen: &Observed, plan: &Plan, requests: usize) {
        let known = self.objects.clone();
        self.carry_out_knowing(known, seen, plan, requests);
    }

    /// As a leader does that has heard of nothing since.
    pub fn carry_out_knowing(&mut self, known: Objects, seen: &Observed, plan: &Plan, requests: usize) {
        super::requests::carry_out(self, known, seen, plan, requests);
        self.network();
    }
}
