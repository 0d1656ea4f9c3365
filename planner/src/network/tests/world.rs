//! The API server, a machine per VNic, and the preconditions with which the controller writes.

use crate::machine::observed::{has_finalizer, uid};
use crate::network::addresses::{self, Action, Observed, Plan};
use crate::network::{pool::Pool, subnets};
use api::attachment::NicAttachmentSpec;
use api::hold::Holder;
use api::network::VNicSpec;
use api::{AddressHold, NicAttachment, Subnet, VNic, labels, names};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub const NOW: Timestamp = Timestamp::UNIX_EPOCH;

#[derive(Debug, Clone, Default)]
pub struct World {
    counter: u64,
    pub subnet: Option<Subnet>,
    pub vnics: BTreeMap<String, VNic>,
    pub holds: BTreeMap<String, AddressHold>,
    /// By the name of the VNic; the attachment outlives it.
    pub nics: Vec<NicAttachment>,
    /// `""`, or the range of the Subnet.
    cidr: &'static str,
    /// VNics for which the holds were listed.
    listed: BTreeSet<String>,
}

impl World {
    pub fn new() -> Self {
        let mut world = Self::default();
        world.create_subnet();
        world
    }

    /// With a Subnet of this range.
    pub fn with(cidr: &'static str) -> Self {
        let mut world = Self { cidr, ..Self::default() };
        world.create_subnet();
        world
    }

    fn meta(&mut self, name: &str) -> ObjectMeta {
        self.counter += 1;
        ObjectMeta {
            namespace: Some("team".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(format!("uid-{}", self.counter)),
            resource_version: Some(self.counter.to_string()),
            creation_timestamp: Some(Time(NOW)),
            ..ObjectMeta::default()
        }
    }

    fn touch(&mut self, meta: &mut ObjectMeta) {
        self.counter += 1;
        meta.resource_version = Some(self.counter.to_string());
    }

    pub fn create_subnet(&mut self) {
        if self.subnet.is_none() {
            let cidr = if self.cidr.is_empty() { "10.20.0.0/24" } else { self.cidr };
            let spec = serde_json::json!({"cidr": cidr, "gateway": "10.20.0.1"});
            let mut subnet = Subnet::new("blue", serde_json::from_value(spec).expect("a spec"));
            subnet.metadata = self.meta("blue");
            self.subnet = Some(subnet);
        }
    }

    pub fn delete_subnet(&mut self) {
        if let Some(mut subnet) = self.subnet.take()
            && has_finalizer(&subnet.metadata, labels::FINALIZER_IN_USE)
        {
            subnet.metadata.deletion_timestamp.get_or_insert(Time(NOW));
            self.touch(&mut subnet.metadata);
            self.subnet = Some(subnet);
        }
    }

    pub fn create(&mut self, name: &str, addresses: &[&str], mac: Option<&str>) {
        if !self.vnics.contains_key(name) {
            let addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
            let mac_address = mac.map(str::to_owned);
            let spec = VNicSpec { subnet: "blue".to_owned(), addresses, mac_address, ..VNicSpec::default() };
            let mut vnic = VNic::new(name, spec);
            vnic.metadata = self.meta(name);
            self.vnics.insert(name.to_owned(), vnic);
        }
    }

    pub fn change(&mut self, name: &str, change: impl FnOnce(&mut VNic)) {
        if let Some(mut vnic) = self.vnics.remove(name) {
            change(&mut vnic);
            self.touch(&mut vnic.metadata);
            if vnic.metadata.deletion_timestamp.is_none() || vnic.metadata.finalizers.iter().flatten().count() > 0 {
                self.vnics.insert(name.to_owned(), vnic);
            }
        }
    }

    pub fn delete(&mut self, name: &str) {
        self.change(name, |vnic| {
            vnic.metadata.deletion_timestamp.get_or_insert(Time(NOW));
        });
    }

    /// The machine: attachment, hold of the VNic and grant in one, as `crate::machine::nics` would.
    pub fn attach(&mut self, name: &str) {
        let Some(vnic) = self.vnics.get(name).cloned() else { return };
        let may = addresses::is_assigned(&vnic) && vnic.metadata.deletion_timestamp.is_none();
        if may && vnic.status.as_ref().is_some_and(|status| status.holder.is_none()) {
            let assigned = vnic.status.as_ref().map(|status| status.addresses.clone()).unwrap_or_default();
            self.attach_with(name, assigned);
        }
    }

    /// Whatever its conditions say.
    pub fn attach_with(&mut self, name: &str, addresses: Vec<String>) {
        let vnic_uid = uid(&self.vnics[name].metadata).to_owned();
        let spec = serde_json::json!({
            "owner": {"kind": "BareMetalMachine", "namespace": "team", "name": format!("bm-{name}"), "uid": ""},
            "dpuName": "dpu-1", "interfaceName": "eth0", "vnicName": name, "vnicUID": vnic_uid, "logicalPort": "",
            "macAddress": "", "addresses": addresses, "mtu": 1400, "grant": {"epoch": 1},
        });
        let spec: NicAttachmentSpec = serde_json::from_value(spec).expect("a spec");
        let mut nic = NicAttachment::new(name, spec);
        nic.metadata = self.meta(name);
        self.nics.push(nic);
        self.change(name, |vnic| vnic.status.get_or_insert_default().holder = Some(Holder::default()));
    }

    pub fn detach(&mut self, name: &str) {
        let of_it = |nic: &NicAttachment| nic.spec.vnic_name == name;
        self.nics.retain(|nic| !of_it(nic));
        self.change(name, |vnic| {
            if let Some(status) = &mut vnic.status {
                status.holder = None;
            }
        });
    }

    pub fn observe(&self, name: &str) -> Option<Observed> {
        let vnic = Arc::new(self.vnics.get(name)?.clone());
        let interests = addresses::interests(&vnic);
        let own = uid(&vnic.metadata).to_owned();
        let of_interest = |hold: &&AddressHold| {
            let subnet = self.subnet.as_ref().map(|subnet| uid(&subnet.metadata).to_owned()).unwrap_or_default();
            let named = |address: &String| hold.metadata.name == Some(names::address_hold(&subnet, address));
            hold.spec.owner.uid == own || interests.iter().any(named)
        };
        let rival = |other: &&VNic| {
            other.metadata.uid != vnic.metadata.uid
                && (addresses::interests(other).iter().any(|address| interests.contains(address))
                    || (addresses::chooses(&vnic) && addresses::runs_unassigned(other)))
        };
        Some(Observed {
            subnet: self.subnet.clone().map(Arc::new),
            provider: None,
            refused: None,
            holds: self.holds.values().filter(of_interest).cloned().map(Arc::new).collect(),
            rivals: self.vnics.values().filter(rival).cloned().map(Arc::new).collect(),
            attachments: self.nics.iter().filter(|nic| nic.spec.vnic_uid == own).cloned().map(Arc::new).collect(),
            orphans: Vec::new(),
            is_listed: self.listed.contains(name),
            vnic,
        })
    }

    /// As the caches of a leader tell it that has seen everything.
    pub fn pool(&self) -> Pool {
        let subnet = self.subnet.as_ref().map(|subnet| uid(&subnet.metadata).to_owned());
        Pool::of(self.holds.values().filter(|hold| Some(&hold.spec.subnet.uid) == subnet.as_ref()))
    }

    pub fn plan(&self, o: &Observed) -> Plan {
        addresses::plan(o, &self.pool(), NOW)
    }

    /// Who has which address, as far as it was ever said.
    pub fn given(&self, name: &str) -> Vec<String> {
        self.vnics[name].status.as_ref().map(|status| status.addresses.clone()).unwrap_or_default()
    }

    /// As the controller does: what is seen is old, and every write has its preconditions.
    pub fn carry_out(&mut self, o: &Observed, plan: &Plan) {
        let name = o.vnic.metadata.name.clone().unwrap_or_default();
        for action in &plan.actions {
            match action {
                Action::ProtectSubnet => {
                    let seen = o.subnet.as_ref().map(|subnet| subnet.metadata.clone()).unwrap_or_default();
                    if let Some(mut subnet) = self.subnet.clone().filter(|there| same(&there.metadata, &seen)) {
                        subnet.metadata.finalizers = Some(vec![labels::FINALIZER_IN_USE.to_owned()]);
                        self.touch(&mut subnet.metadata);
                        self.subnet = Some(subnet);
                    }
                }
                Action::Protect if self.is_same(o) => self.change(&name, |vnic| {
                    vnic.metadata.finalizers = Some(vec![labels::FINALIZER_IN_USE.to_owned()]);
                }),
                Action::CreateAddressHold(hold) if self.subnet_stays(o) => {
                    let meta = self.meta("");
                    let key = hold.metadata.name.clone().unwrap_or_default();
                    let mut hold = AddressHold::clone(hold);
                    hold.metadata = ObjectMeta { name: Some(key.clone()), ..meta };
                    self.holds.entry(key).or_insert(hold);
                }
                Action::ListAddressHolds => {
                    self.listed.insert(name.clone());
                }
                Action::DropAddressHold(hold) => {
                    let other = self.vnics.get(&name).filter(|there| {
                        let has = there.status.iter().flat_map(|status| &status.addresses);
                        there.metadata.uid == o.vnic.metadata.uid && has.clone().count() > 0 && {
                            has.clone().all(|has| Some(has) != hold.spec.address.as_ref())
                        }
                    });
                    if other.is_some() {
                        self.holds.retain(|_, there| there.metadata.uid != hold.metadata.uid);
                    }
                }
                Action::DeleteAddressHold(hold) if self.is_unused(o) => {
                    self.holds.retain(|_, there| there.metadata.uid != hold.metadata.uid);
                }
                Action::Unprotect if self.is_unused(o) && self.is_same(o) => {
                    self.change(&name, |vnic| vnic.metadata.finalizers = None);
                }
                _ => {}
            }
        }
        if let Some(status) = plan.status.clone().filter(|_| plan.actions.is_empty() && self.is_same(o)) {
            self.change(&name, |vnic| {
                let there = vnic.status.get_or_insert_default();
                (there.addresses, there.mac_address) = (status.addresses, status.mac_address);
                there.conditions = status.conditions;
            });
        }
    }

    fn is_same(&self, o: &Observed) -> bool {
        let name = o.vnic.metadata.name.clone().unwrap_or_default();
        self.vnics.get(&name).is_some_and(|there| same(&there.metadata, &o.vnic.metadata))
    }

    fn subnet_stays(&self, o: &Observed) -> bool {
        let seen = o.subnet.as_ref().map(|subnet| uid(&subnet.metadata));
        self.subnet.as_ref().is_some_and(|there| {
            Some(uid(&there.metadata)) == seen
                && there.metadata.deletion_timestamp.is_none()
                && has_finalizer(&there.metadata, labels::FINALIZER_IN_USE)
        })
    }

    fn is_unused(&self, o: &Observed) -> bool {
        let own = uid(&o.vnic.metadata);
        let there = self.vnics.values().find(|vnic| uid(&vnic.metadata) == own);
        let free = there.is_none_or(|vnic| vnic.metadata.deletion_timestamp.is_some() && !addresses::is_marked(vnic));
        free && !self.nics.iter().any(|nic| nic.spec.vnic_uid == own)
    }

    /// What the controller does about holds of VNics that no longer exist, and about the Subnet.
    pub fn collect(&mut self) {
        let (vnics, nics) = (&self.vnics, &self.nics);
        self.holds.retain(|_, hold| {
            let owner = &hold.spec.owner.uid;
            vnics.values().any(|vnic| uid(&vnic.metadata) == owner)
                || nics.iter().any(|nic| nic.spec.vnic_uid == *owner)
        });
        let Some(subnet) = self.subnet.clone() else { return };
        let of_it = |hold: &&AddressHold| hold.spec.subnet.uid == uid(&subnet.metadata);
        let plan = subnets::plan(
            &subnets::Observed {
                vnics: self.vnics.values().cloned().map(Arc::new).collect(),
                holds: self.holds.values().filter(of_it).cloned().map(Arc::new).collect(),
                attachments: self.nics.iter().cloned().map(Arc::new).collect(),
                subnet: Arc::new(subnet),
            },
            NOW,
        );
        if plan.release {
            self.subnet = None;
        }
    }

    pub fn settle(&mut self) {
        for _ in 0..12 {
            for name in self.vnics.keys().cloned().collect::<Vec<_>>() {
                if let Some(o) = self.observe(&name) {
                    let plan = self.plan(&o);
                    self.carry_out(&o, &plan);
                }
            }
            self.collect();
        }
    }

    pub fn said(&self, name: &str) -> String {
        let status = self.vnics[name].status.clone().unwrap_or_default();
        let said = api::conditions::get(&status.conditions, api::conditions::ADDRESSES_ASSIGNED).cloned();
        said.map(|said| format!("{}: {}", said.reason, said.message)).unwrap_or_default()
    }
}

fn same(there: &ObjectMeta, seen: &ObjectMeta) -> bool {
    there.uid == seen.uid && there.resource_version == seen.resource_version
}
