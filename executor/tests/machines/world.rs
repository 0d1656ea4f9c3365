//! What is there: the objects of the API server, and the servers with their DPUs.

use super::{INVENTORY, USER};
use api::conditions::{self, ConditionStatus};
use api::dpu::{
    BmcReference, ConnectorStatus, DpuCapacity, DpuSpec, DpuStatus, HardwarePolicySpec, HardwareReference, PowerDomain,
};
use api::machine::{
    BareMetalMachineSpec, ClaimReference, Disk, DiskBus, DiskSource, ImageKind, ImageReference, Interface, RunStrategy,
};
use api::network::Metadata;
use api::quantity::quantity;
use api::tinkerbell::Hardware;
use api::tinkerbell::hardware::TypedLocalObjectReference;
use api::{BareMetalMachine, Dpu, HardwarePolicy, Subnet, labels};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus, PersistentVolumeSpec, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use model::{Kind, Objects};
use planner::host::{BootConfiguration, BootOption, HostObserved, Lack, PowerState};
use planner::machine::observed::{
    BmcProblem, BmcSeen, ClaimSeen, ClassSeen, DpuSeen, ImageSeen, Observed, VolumeSeen, annotation, name, uid,
};
use planner::network::pods::worker;
use planner::seen::Seen;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

pub const DRIVER: &str = "csi.metalplane.io";
pub const FENCE: &str = "OwnDriver";
pub const SHARED: &str = "shared";

/// A server: its power, its BMC, and the DPU in it.
#[derive(Debug, Clone)]
pub struct Server {
    pub power: PowerState,
    pub boot: Vec<String>,
    pub bmc_answers: bool,
    /// As its BMC reports it.
    pub serial_number: Option<String>,
    /// What its BMC does not offer.
    pub lacks: BTreeSet<Lack>,
    /// What the BMC accepts takes effect at the next step.
    pub pending: Option<PowerState>,
    pub agent_lives: bool,
    pub boots: u32,
    pub confirmed_down: bool,
    /// Its DPU has no power.
    pub dpu_off: bool,
    pub heard_at: Timestamp,
    /// UIDs of the disks that this DPU presents, with their volumes. Lost with a boot.
    pub exposed: BTreeMap<String, Option<String>>,
    /// Of the guest: it has been running since.
    pub guest_since: Option<Timestamp>,
    pub accepted_at: Option<Timestamp>,
    pub power_ons: u32,
    pub resets: u32,
}

#[derive(Debug, Clone)]
pub struct World {
    pub now: Timestamp,
    pub objects: Objects,
    pub servers: BTreeMap<String, Server>,
    /// VolumeAttributesClasses: driver and parameters.
    pub classes: BTreeMap<String, (String, BTreeMap<String, String>)>,
    /// UIDs of attachments that the storage refuses.
    pub fenced: BTreeSet<String>,
    /// Of the one Subnet.
    pub metadata: Metadata,
}

pub fn server_of(hardware: &str) -> String {
    hardware.replace("hw-", "dpu-")
}

/// What a DPU's own BMC shows.
fn own_bmc(power: PowerState, now: Timestamp) -> BmcSeen {
    let host = HostObserved::with_power(power);
    let identity = Some("own".to_owned());
    BmcSeen { host: Seen::Fresh(host), read_at: Some(now), identity, ..BmcSeen::default() }
}

/// The claim that is the user's own is on storage that only kubelet can connect.
fn attributes(claim: &str) -> BTreeMap<String, String> {
    let strange = (claim == SHARED).then(|| ("cipher".to_owned(), "aes".to_owned()));
    strange.into_iter().collect()
}

fn stored(volume: &str, attributes: BTreeMap<String, String>) -> PersistentVolume {
    let csi = CSIPersistentVolumeSource {
        driver: DRIVER.into(),
        volume_handle: format!("handle-{volume}"),
        volume_attributes: Some(attributes),
        ..CSIPersistentVolumeSource::default()
    };
    PersistentVolume {
        metadata: ObjectMeta { name: Some(volume.to_owned()), ..ObjectMeta::default() },
        spec: Some(PersistentVolumeSpec { csi: Some(csi), ..PersistentVolumeSpec::default() }),
        status: None,
    }
}

fn meta(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta { namespace: Some(namespace.to_owned()), name: Some(name.to_owned()), ..ObjectMeta::default() }
}

impl Deref for World {
    type Target = Objects;

    fn deref(&self) -> &Objects {
        &self.objects
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Objects {
        &mut self.objects
    }
}

impl World {
    /// Two servers, the second with a DPU that shares its host's power, and no machine.
    pub fn new() -> Self {
        let mut world = Self {
            now: Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1),
            objects: Objects::default(),
            servers: BTreeMap::new(),
            classes: BTreeMap::new(),
            fenced: BTreeSet::new(),
            metadata: Metadata::Enabled,
        };
        world.rack(1, PowerDomain::Standby);
        world.rack(2, PowerDomain::Host);
        world.new_claim(SHARED);
        world.bind_claims();
        world
    }

    fn rack(&mut self, number: u32, power_domain: PowerDomain) {
        let (hardware_name, dpu_name) = (format!("hw-{number}"), format!("dpu-{number}"));
        let mut hardware = Hardware { metadata: meta(INVENTORY, &hardware_name), ..Hardware::default() };
        hardware.spec.bmc_ref = Some(TypedLocalObjectReference { kind: "Machine".into(), ..Default::default() });
        self.create(hardware);
        let spec = DpuSpec {
            hardware_ref: Some(HardwareReference { name: hardware_name, serial_number: None }),
            power_domain,
            approved: true,
            bmc_ref: Some(BmcReference { name: format!("{dpu_name}-bmc"), serial_number: None }),
            ..DpuSpec::default()
        };
        let mut dpu = Dpu::new(&dpu_name, spec);
        dpu.status = Some(DpuStatus {
            namespace: Some(format!("metalplane-{dpu_name}")),
            boot_id: Some("boot-0".into()),
            capacity: Some(DpuCapacity { disks: 16, nics: 16, hot_plug_ports: 14 }),
            buses: vec![DiskBus::NVMe, DiskBus::VirtioBlk],
            connectors: [(DRIVER, FENCE), (planner::connector::KUBELET, "None")]
                .map(|(driver, fence)| ConnectorStatus {
                    driver: driver.into(),
                    fence: fence.into(),
                    import_refusal: None,
                })
                .into(),
            ..DpuStatus::default()
        });
        let server = Server {
            power: PowerState::Off,
            boot: vec!["Boot0003".into(), "Boot0001".into()],
            bmc_answers: true,
            serial_number: None,
            lacks: BTreeSet::new(),
            pending: None,
            agent_lives: power_domain == PowerDomain::Standby,
            boots: 0,
            confirmed_down: false,
            dpu_off: false,
            heard_at: self.now,
            exposed: BTreeMap::new(),
            guest_since: None,
            accepted_at: None,
            power_ons: 0,
            resets: 0,
        };
        self.create(dpu);
        self.servers.insert(dpu_name, server);
        self.report_dpus();
    }

    pub fn create<K: Kind>(&mut self, object: K) {
        self.objects.create(object).expect("a name of this world is new");
    }

    /// A claim of a user's own.
    pub fn new_claim(&mut self, name: &str) {
        let requests = Some([("storage".to_owned(), quantity(1 << 30))].into());
        let spec = PersistentVolumeClaimSpec {
            resources: Some(VolumeResourceRequirements { requests, limits: None }),
            volume_mode: Some("Block".into()),
            ..PersistentVolumeClaimSpec::default()
        };
        self.create(PersistentVolumeClaim { metadata: meta(USER, name), spec: Some(spec), status: None });
    }

    /// The provisioner and the binder.
    pub fn bind_claims(&mut self) {
        let mut volumes = Vec::new();
        for claim in self.objects.claims.values_mut() {
            let claim_name = name(&claim.metadata).to_owned();
            let spec = claim.spec.get_or_insert_default();
            let volume = format!("pv-{claim_name}");
            spec.volume_name = Some(volume.clone());
            let requests = spec.resources.as_ref().and_then(|r| r.requests.clone());
            let class = claim.status.take().and_then(|status| status.current_volume_attributes_class_name);
            claim.status = Some(PersistentVolumeClaimStatus {
                phase: Some("Bound".into()),
                capacity: requests,
                current_volume_attributes_class_name: class,
                ..PersistentVolumeClaimStatus::default()
            });
            volumes.push(stored(&volume, attributes(&claim_name)));
        }
        for volume in volumes {
            // One that is there already is as it is.
            let _ = self.objects.create(volume);
        }
    }

    /// A machine with a cloned boot disk, the shared claim if asked for, and an interface.
    pub fn machine(&mut self, machine_name: &str, shares: bool) {
        let mut disks = vec![Disk {
            name: "root".into(),
            boot_order: Some(1),
            source: DiskSource {
                image: Some(ImageReference { kind: ImageKind::MachineImage, name: "image".into() }),
                ..DiskSource::default()
            },
            ..Disk::default()
        }];
        if shares {
            disks.push(Disk {
                name: "data".into(),
                bus: DiskBus::VirtioBlk,
                source: DiskSource {
                    persistent_volume_claim: Some(ClaimReference { claim_name: SHARED.into() }),
                    ..DiskSource::default()
                },
                ..Disk::default()
            });
        }
        let number = self.machines.len() + 7;
        let interface = Interface {
            name: "eth0".into(),
            subnet: Some("blue".into()),
            addresses: Some(vec![format!("10.20.0.{number}")]),
            ..Interface::default()
        };
        let spec = BareMetalMachineSpec {
            run_strategy: RunStrategy::Always,
            disks,
            interfaces: vec![interface],
            termination_grace_period_seconds: 20,
            ..BareMetalMachineSpec::default()
        };
        let mut machine = BareMetalMachine::new(machine_name, spec);
        machine.metadata = meta(USER, machine_name);
        self.create(machine);
    }

    pub fn report_dpus(&mut self) {
        for dpu in self.objects.dpus.values_mut() {
            let server = &self.servers[name(&dpu.metadata)];
            let status = dpu.status.get_or_insert_default();
            let parked = !server.agent_lives
                && dpu.spec.power_domain == PowerDomain::Host
                && server.power == PowerState::Off
                && server.bmc_answers;
            if server.agent_lives {
                status.boot_id = Some(format!("boot-{}", server.boots));
            }
            let ready = if server.agent_lives { ConditionStatus::True } else { ConditionStatus::Unknown };
            conditions::set(&mut status.conditions, conditions::READY, ready, "Model", "", None, self.now);
            conditions::set(&mut status.conditions, conditions::PARKED, parked.into(), "Model", "", None, self.now);
            let boot_id = status.boot_id.clone();
            let verified = planner::own_bmc::verify(dpu, false, &own_bmc(PowerState::On, self.now));
            if let (Some(verdict), Some(status)) = (verified, &mut dpu.status) {
                status.verified_bmc = verdict.record;
                let ((verified, reason, message), all) = (verdict.finding, &mut status.conditions);
                conditions::set(all, conditions::BMC_VERIFIED, verified, reason, &message, None, self.now);
            }
            dpu.spec.confirmed_down =
                server.confirmed_down.then(|| api::dpu::ConfirmedDown { boot_id: boot_id.unwrap_or_default() });
        }
    }

    fn bmc(&self, hardware: &str) -> BmcSeen {
        let server = &self.servers[&server_of(hardware)];
        if !server.bmc_answers {
            let problem = Some(BmcProblem::Unreachable("no answer".into()));
            return BmcSeen { problem, ..BmcSeen::default() };
        }
        let option = |reference: &str, display_name: &str, path: &str| BootOption {
            reference: reference.into(),
            display_name: display_name.into(),
            uefi_device_path: Some(path.into()),
            enabled: true,
            present: true,
        };
        let disk = format!("UEFI QEMU NVMe Ctrl {} 1", api::names::boot_serial(&server_of(hardware)));
        let host = HostObserved {
            boot: BootConfiguration {
                order: server.boot.clone(),
                options: vec![
                    option("Boot0001", &disk, "PciRoot(0x0)/Pci(0x2,0x0)/NVMe(0x1,00-00-00-00-00-00-00-00)"),
                    option(
                        "Boot0003",
                        "UEFI PXEv4 (MAC:02D00F000001)",
                        "PciRoot(0x0)/Pci(0x4,0x0)/MAC(02D00F000001,0x1)",
                    ),
                ],
                ..BootConfiguration::default()
            },
            serial_number: server.serial_number.clone(),
            lacks: server.lacks.clone(),
            ..HostObserved::with_power(server.power)
        };
        BmcSeen {
            host: Seen::Fresh(host),
            read_at: Some(self.now),
            accepted_at: server.accepted_at,
            ..BmcSeen::default()
        }
    }

    pub fn observe(&self, machine_name: &str) -> Option<Observed> {
        let machine = self.machines.get(machine_name)?;
        let own = uid(&machine.metadata).to_owned();
        let is_held = |h: &&Arc<Hardware>| annotation(&h.metadata, labels::CLAIMED_BY) == Some(&own);
        let held: Vec<Arc<Hardware>> = self.hardware.all().filter(is_held).cloned().collect();
        let mut o = Observed { machine: Arc::new(machine.clone()), ..Observed::default() };
        if !held.is_empty() {
            o.hardware = held;
        } else {
            o.hardware = self.hardware.all().cloned().collect();
            let mut policy = HardwarePolicy::new("all", HardwarePolicySpec::default());
            policy.metadata.namespace = Some(INVENTORY.into());
            o.policies = vec![Arc::new(policy)];
        }
        o.dpus = self.dpus.all().map(|dpu| self.dpu(dpu)).collect();
        for claim in self.claims.all() {
            let claim_name = name(&claim.metadata).to_owned();
            let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).map(|name| VolumeSeen {
                handle: format!("handle-{name}"),
                name,
                driver: DRIVER.into(),
                attributes: attributes(&claim_name),
            });
            let class = claim.status.as_ref().and_then(|status| status.current_volume_attributes_class_name.clone());
            let class = class.map(|name| ClassSeen { found: self.classes.get(&name).cloned(), name });
            let seen = ClaimSeen { claim: claim.clone(), volume, class, ..ClaimSeen::default() };
            o.claims.insert(claim_name, seen);
        }
        let image = ImageSeen { ready: true, size_bytes: 1 << 30, snapshot_name: "s".into(), ..ImageSeen::default() };
        o.images.insert((ImageKind::MachineImage, "image".into()), image);
        o.holder_pull_secrets = vec!["registry".to_owned()];
        o.volume_attachments = self.volume_attachments.all().cloned().collect();
        o.holds = self.holds.all().map(|hold| (name(&hold.metadata).to_owned(), hold.clone())).collect();
        o.disk_attachments = self.disks.all().filter(|a| a.spec.owner.uid == own).cloned().collect();
        o.nic_attachments = self.nics.all().filter(|a| a.spec.owner.uid == own).cloned().collect();
        o.pod_nics = self.nics.all().filter(|a| worker::of(a) == Some(own.as_str())).cloned().collect();
        let spec = serde_json::json!({"cidr": "10.20.0.0/24", "gateway": "10.20.0.1", "metadata": self.metadata});
        let subnet = Subnet::new("blue", serde_json::from_value(spec).expect("a spec"));
        o.subnets.insert("blue".into(), Arc::new(subnet));
        o.vnics = self.vnics.all().map(|vnic| (name(&vnic.metadata).to_owned(), vnic.clone())).collect();
        let current = planner::machine::claim::current(&o).map(|hardware| name(&hardware.metadata).to_owned());
        o.bmc = current.map(|hardware| self.bmc(&hardware)).unwrap_or_default();
        o.fences.insert(DRIVER.into(), FENCE.into());
        o.migrations = self.migrations.all().filter(|m| m.spec.machine_name == machine_name).cloned().collect();
        o.holder_pods = self.holder_pods_of(&own);
        Some(o)
    }

    fn dpu(&self, dpu: &Arc<Dpu>) -> DpuSeen {
        let name = name(&dpu.metadata);
        let server = &self.servers[name];
        DpuSeen {
            dpu: dpu.clone(),
            silent: !server.agent_lives,
            heard_at: Some(server.heard_at),
            boot_disk_reads: None,
            out_of_service: server.confirmed_down,
            bmc: own_bmc(if server.dpu_off { PowerState::Off } else { PowerState::On }, self.now),
            attached: self.attached(name),
        }
    }

    fn attached(&self, dpu: &str) -> BTreeMap<String, String> {
        let disks = self.disks.values().map(|disk| (&disk.spec.dpu_name, &disk.spec.owner));
        let nics = self.nics.values().map(|nic| (&nic.spec.dpu_name, &nic.spec.owner));
        let here = disks.chain(nics).filter(|(of, _)| *of == dpu);
        here.map(|(_, owner)| (owner.uid.clone(), format!("machine '{}'", owner.name))).collect()
    }
}
