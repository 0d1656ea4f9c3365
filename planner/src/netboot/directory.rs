//! The Hardware of an inventory, by MAC and by agent. Made anew when an object changes; asked per packet.

use super::{Why, installation, is_of_machine, may_run};
use crate::enrol::is_unapproved;
use crate::workflow;
use api::tinkerbell::hardware::{HardwareSpec, Interface, Netboot};
use api::tinkerbell::{Hardware, Workflow};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

#[derive(Debug, Default, Clone)]
pub struct Directory {
    hardware: Vec<Arc<Hardware>>,
    /// Hardware and interface, by MAC; more than one: nobody is answered.
    by_mac: BTreeMap<String, Vec<(usize, usize)>>,
    by_agent: BTreeMap<String, Vec<usize>>,
    /// Hardware and the MAC of an interface, by the address that is its.
    by_address: BTreeMap<IpAddr, Vec<(usize, String)>>,
    /// Workflows, by the Hardware whose installation they were and to which nothing is to be done any more.
    installed: BTreeMap<String, String>,
    /// UIDs of Workflows.
    succeeded: BTreeSet<String>,
}

/// One interface of one server.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub hardware: &'a Hardware,
    pub interface: &'a Interface,
    pub mac: &'a str,
    /// The Workflow that installed this server; `None`: none has, or another one waits or runs.
    pub installed_by: Option<&'a str>,
    /// The installation that is on record as begun was a success, which the controller has not written down yet.
    pub has_installed: bool,
}

/// Stands for every server that no Hardware names, where such servers are booted.
static STRANGER: LazyLock<Hardware> = LazyLock::new(|| {
    let netboot = Some(Netboot { allow_pxe: Some(true), ..Netboot::default() });
    let interfaces = vec![Interface { netboot, ..Interface::default() }];
    Hardware { spec: HardwareSpec { interfaces, ..HardwareSpec::default() }, ..Hardware::default() }
});

impl Subject<'_> {
    /// By which its agent asks: `spec.agentID`, else the MAC that it booted by.
    pub fn agent(&self) -> &str {
        self.hardware.spec.agent_id.as_deref().filter(|id| !id.is_empty()).unwrap_or(self.mac)
    }
}

impl Directory {
    pub fn new(hardware: Vec<Arc<Hardware>>) -> Self {
        let mut by_mac: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut by_agent: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        let mut by_address: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (at, object) in hardware.iter().enumerate() {
            for (n, interface) in object.spec.interfaces.iter().enumerate() {
                let Some(dhcp) = &interface.dhcp else { continue };
                let Some(mac) = dhcp.mac.as_ref().map(|mac| mac.to_ascii_lowercase()) else { continue };
                if let Some(address) = dhcp.ip.as_ref().and_then(|ip| ip.address.as_ref()?.parse().ok()) {
                    by_address.entry(address).or_default().push((at, mac.clone()));
                }
                by_agent.entry(mac.clone()).or_default().push(at);
                by_mac.entry(mac).or_default().push((at, n));
            }
            if let Some(agent) = object.spec.agent_id.clone() {
                by_agent.entry(agent).or_default().push(at);
            }
        }
        by_mac.values_mut().for_each(|found| written_down(&hardware, found, |(at, _)| *at));
        by_agent.values_mut().for_each(|found| written_down(&hardware, found, |at| *at));
        Self { hardware, by_mac, by_agent, by_address, ..Self::default() }
    }

    /// Says which servers their last Workflow has installed.
    pub fn with_workflows(self, workflows: &[Arc<Workflow>]) -> Self {
        let succeeded = workflows.iter().filter(|workflow| workflow::has_succeeded(workflow));
        let succeeded = succeeded.filter_map(|workflow| workflow.metadata.uid.clone()).collect();
        Self { installed: installed(workflows), succeeded, ..self }
    }

    /// By a MAC in lower case with colons.
    pub fn by_mac(&self, mac: &str) -> Result<Subject<'_>, Why> {
        match self.by_mac.get_key_value(mac).map(|(mac, found)| (mac, found.as_slice())) {
            Some((mac, &[(at, n)])) => {
                let hardware = self.hardware[at].as_ref();
                let name = hardware.metadata.name.as_deref().unwrap_or_default();
                let installed_by = self.installed.get(name).map(String::as_str);
                let has_installed = installation(hardware).is_some_and(|workflow| self.succeeded.contains(&workflow));
                Ok(Subject { hardware, interface: &hardware.spec.interfaces[n], mac, installed_by, has_installed })
            }
            Some((_, several)) => {
                let mut names: Vec<_> = several.iter().map(|(at, _)| self.name(*at)).collect();
                names.sort();
                Err(Why::SameMac { mac: mac.to_owned(), names })
            }
            None => Err(Why::UnknownMac { mac: mac.to_owned() }),
        }
    }

    /// Every Hardware that has this MAC, whether it is answered by it or not.
    pub fn with_mac(&self, mac: &str) -> impl Iterator<Item = &Hardware> {
        self.by_mac.get(mac).into_iter().flatten().map(|(at, _)| self.hardware[*at].as_ref())
    }

    /// By a MAC; with `strangers`, a server that no Hardware names is one whose only interface may boot, and has no address of ours.
    pub fn by_mac_or_stranger<'a>(&'a self, mac: &'a str, strangers: bool) -> Result<Subject<'a>, Why> {
        match self.by_mac(mac) {
            Err(Why::UnknownMac { .. }) if strangers => {
                let hardware: &Hardware = &STRANGER;
                let interface = &hardware.spec.interfaces[0];
                Ok(Subject { hardware, interface, mac, installed_by: None, has_installed: false })
            }
            found => found,
        }
    }

    /// By the address that one Hardware alone gives. Where several of its interfaces have it, as those of a bond, it is not known which
    /// of them asks: it is the same server by each, and the first one stands for all by which it may boot from the network, if it may.
    pub fn by_address(&self, address: IpAddr) -> Result<Subject<'_>, Why> {
        let having = self.by_address.get(&address).map(Vec::as_slice).unwrap_or_default();
        let is_one = having.iter().all(|(at, _)| *at == having[0].0);
        let interfaces = having.iter().filter(|_| is_one).map(|(_, mac)| self.by_mac(mac));
        let interfaces = interfaces.collect::<Result<Vec<_>, _>>()?;
        let may_boot = |subject: &&Subject<'_>| {
            subject.interface.netboot.as_ref().is_some_and(|netboot| netboot.allow_pxe == Some(true))
        };
        let found = interfaces.iter().find(may_boot).or(interfaces.first());
        found.copied().ok_or(Why::UnknownAddress { address })
    }

    /// Whether it follows from this address which interface asks.
    pub fn tells_interface(&self, address: IpAddr) -> bool {
        self.by_address.get(&address).is_some_and(|having| having.len() == 1)
    }

    /// Whether any Hardware gives this address to an interface.
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.by_address.contains_key(&address)
    }

    /// Every Hardware whose agent may have this identifier.
    pub fn by_agent(&self, agent: &str) -> impl Iterator<Item = &Hardware> {
        self.by_agent.get(agent).into_iter().flatten().map(|at| self.hardware[*at].as_ref())
    }

    /// Whether the agent may be served from this Workflow: every Hardware that it may be of allows that. What is a machine's is for
    /// an agent of the inventory alone.
    pub fn may_run(&self, agent: &str, workflow: &Workflow) -> bool {
        let mut all = self.by_agent(agent).peekable();
        (all.peek().is_some() || !is_of_machine(workflow)) && all.all(|hardware| may_run(hardware, workflow))
    }

    /// The Workflows that the agent may be served from, the one that counts first. One that it may not run hides none: what was given
    /// up may be RUNNING for as long as its time is.
    pub fn candidates<'a>(&self, agent: &str, all: impl IntoIterator<Item = &'a Workflow>) -> Vec<&'a Workflow> {
        workflow::candidates(agent, all.into_iter().filter(|workflow| self.may_run(agent, workflow)))
    }

    /// MAC addresses of more than one interface.
    pub fn conflicts(&self) -> impl Iterator<Item = Why> {
        self.by_mac.iter().filter(|(_, found)| found.len() > 1).filter_map(|(mac, _)| self.by_mac(mac).err())
    }

    fn name(&self, at: usize) -> String {
        self.hardware[at].metadata.name.clone().unwrap_or_default()
    }
}

/// What was discovered, and nobody has approved, counts for nothing beside what somebody has written down.
fn written_down<T>(hardware: &[Arc<Hardware>], found: &mut Vec<T>, at: impl Fn(&T) -> usize) {
    let is_written = |one: &T| !is_unapproved(&hardware[at(one)]);
    if found.iter().any(is_written) {
        found.retain(is_written);
    }
}

/// The last Workflow of a Hardware, if it was a success and no other one is open.
fn installed(workflows: &[Arc<Workflow>]) -> BTreeMap<String, String> {
    let mut by_hardware: BTreeMap<&str, Vec<&Workflow>> = BTreeMap::new();
    for object in workflows {
        if let Some(name) = object.spec.hardware_ref.as_deref().filter(|_| object.spec.disabled != Some(true)) {
            by_hardware.entry(name).or_default().push(object);
        }
    }
    let last = |all: Vec<&Workflow>| {
        let is_open = all.iter().any(|object| !workflow::is_terminal(object) && !workflow::has_succeeded(object));
        let order = |object: &&Workflow| {
            let meta = &object.metadata;
            (meta.creation_timestamp.as_ref().map(|time| time.0), meta.name.clone())
        };
        let last = all.into_iter().max_by_key(order).filter(|_| !is_open)?;
        workflow::has_succeeded(last).then(|| last.metadata.name.clone().unwrap_or_default())
    };
    by_hardware.into_iter().filter_map(|(name, all)| Some((name.to_owned(), last(all)?))).collect()
}
