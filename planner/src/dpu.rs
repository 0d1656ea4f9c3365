//! One DPU: let in by its administrator, given a namespace and an identity, and watched for silence.

use crate::boot_option::discovery::Record;
use crate::host::{BmcNeed, HostObserved, PowerState};
use crate::identity::{self, Identity};
use crate::meta::{annotation, has_finalizer};
use crate::observed::{BmcProblem, BmcSeen, DpuSeen};
use crate::own_bmc::{self, BMC_NOT_READ, PROTOCOL_UNSUPPORTED, unread};
use crate::seen::Seen;
use api::conditions::{self, BOOT_OPTION_KNOWN, ConditionStatus, SERVES_HOST};
use api::dpu::{DpuStatus, PowerDomain, Releasable, VerifiedBmc, VerifiedHost};
use api::tinkerbell::Hardware;
use api::{Dpu, labels, names};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use std::sync::Arc;

pub mod boot_disk;
mod discovery;
pub(crate) mod eraser;
mod hold_disk;
mod orphans;
pub mod ready;
mod serves;
pub mod went_back;

pub use orphans::{OrphanSeen, RaiseEpoch};
use ready::Word;
pub(crate) use ready::not_ready;
use went_back::{Heard, Site};

/// Reasons of the controller's own conditions of a Dpu.
/// The BMC reports no serial number, and only the agent says which one to expect.
pub const NOT_REPORTED: &str = "NotReported";
const MATCHES: &str = "SerialNumberMatches";
const MISMATCH: &str = "SerialNumberMismatch";

#[derive(Debug, Clone)]
pub struct Observed {
    pub dpu: Arc<Dpu>,
    /// The server that it sits in.
    pub hardware: Option<Arc<Hardware>>,
    /// Its agent's Lease has not changed for five seconds of the controller's monotonic clock.
    pub silent: bool,
    /// Of the server that it sits in.
    pub host: Seen<HostObserved>,
    /// When the reading that gave `host` was begun.
    pub host_read_at: Option<Timestamp>,
    /// Why that could not be read.
    pub problem: Option<BmcProblem>,
    /// Its own BMC, if one is named.
    pub own_bmc: BmcSeen,
    /// Namespace, account and roles were made by this process, for this generation.
    pub prepared: bool,
    /// It is being deleted, and attachments are in its namespace.
    pub used: bool,
    /// What its agent reports as orphans.
    pub orphans: Vec<OrphanSeen>,
    pub heard: Heard,
    pub site: Site,
    /// While the Dpu is asked what its host has: what may prove it down.
    pub asked: Option<DpuSeen>,
    /// Where boot options are looked for before a machine is there: what that rests on.
    pub discovery: Option<DiscoverySeen>,
}

/// Of the server that a Dpu sits in.
#[derive(Debug, Clone, Default)]
pub struct DiscoverySeen {
    /// The Workflow, Job or machine that runs there or is about to.
    pub busy: Option<String>,
    /// Something is in the Dpu's namespace.
    pub attached: bool,
    /// All that name that server.
    pub dpus: Vec<Arc<Dpu>>,
}

/// Of several DPUs that name one server the least is the one that a machine there has.
pub(crate) fn rank(dpu: &Dpu) -> (bool, &str) {
    (!dpu.spec.approved, dpu.metadata.name.as_deref().unwrap_or_default())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The finalizer that keeps it while something is attached: without it nobody could say any more that it is down.
    Protect,
    /// Nothing is attached (read from quorum): the finalizer goes.
    LetGo,
    /// Namespace, ServiceAccount `agent`, RoleBinding, ClusterRole and its binding.
    Prepare,
    /// The bindings go: the agent may do nothing any more.
    Revoke,
}

/// What the controller says about a Dpu; the agent says the rest.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Status {
    pub namespace: Option<String>,
    /// Of the orphans, those that the agent may detach.
    pub releasable: Vec<Releasable>,
    pub verified_bmc: Option<VerifiedBmc>,
    pub verified_host: Option<VerifiedHost>,
    pub went_back_handled: u64,
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub action: Option<Action>,
    /// None: it is so already.
    pub status: Option<Status>,
    /// Of its host.
    pub bmc: BmcNeed,
    /// Of its own BMC.
    pub own_bmc: BmcNeed,
    /// Empty holds whose epoch an orphan has: another writer gets a later one, whatever becomes of the orphan.
    pub raise: Vec<RaiseEpoch>,
    /// When to look again although nothing was heard of.
    pub wake_at: Option<Timestamp>,
    /// The server is claimed to find the boot option of the DPU's disk, with this on record.
    pub discover: Option<Record>,
    /// Nothing at the server says yet that a DPU was in it. It comes before everything else: the Dpu may be deleted at any moment.
    pub is_to_be_remembered: bool,
}

pub fn plan(o: &Observed, now: Timestamp) -> Plan {
    let dpu = &o.dpu;
    let none = DpuStatus::default();
    let before = dpu.status.as_ref().unwrap_or(&none);
    let approved = dpu.spec.is_admitted();
    let namespace = match (approved, o.prepared) {
        (true, true) => Some(names::dpu_namespace(dpu.metadata.name.as_deref().unwrap_or_default())),
        _ => before.namespace.clone(),
    };
    let generation = dpu.metadata.generation;
    let mut ours = Vec::new();
    let mut set = |type_: &str, status: ConditionStatus, reason: &str, message: &str| {
        ours.extend(conditions::get(&before.conditions, type_).cloned());
        conditions::set(&mut ours, type_, status, reason, message, generation, now);
    };
    match approved {
        true if dpu.spec.type_.is_node() => {
            let message = "an ordinary node: its kubelet runs its pods anyway, and nothing is granted there for a host";
            set(conditions::APPROVED, ConditionStatus::True, "NotNeeded", message);
        }
        true => set(conditions::APPROVED, ConditionStatus::True, "Approved", ""),
        false => set(conditions::APPROVED, ConditionStatus::False, "NotApproved", "spec.approved is not true"),
    }
    let shares_power = dpu.spec.power_domain == PowerDomain::Host;
    let host_off = o.host.last().is_some_and(|host| host.power == PowerState::Off);
    let parked = shares_power && o.silent && host_off;
    match parked {
        true => set(
            conditions::PARKED,
            ConditionStatus::True,
            Word::HostOff.as_str(),
            "the DPU shares the power of its host, which is powered off",
        ),
        false => set(conditions::PARKED, ConditionStatus::False, "NotParked", ""),
    }
    let ((verified, reason, message), verified_host) = verified(o);
    set(conditions::HOST_VERIFIED, verified, reason, &message);
    let discovery = discovery::judge(o, now);
    if let Some(verdict) = &discovery {
        set(BOOT_OPTION_KNOWN, verdict.status, verdict.reason, &verdict.message);
    }
    if let Some(message) = serves::refused(o) {
        set(SERVES_HOST, ConditionStatus::False, serves::REASON, &message);
    }
    let own_bmc = own_bmc::verify(dpu, o.silent, &o.own_bmc);
    if let Some((verified, reason, message)) = own_bmc.as_ref().map(|verdict| &verdict.finding) {
        set(conditions::BMC_VERIFIED, *verified, reason, message);
    }
    let verified_bmc = own_bmc.and_then(|verdict| verdict.record);
    let known = went_back::verdict(o, parked);
    if let Some((status, reason, message)) = &known {
        set(conditions::EXPOSURES_KNOWN, *status, reason, message);
    }
    let asked = known.is_some_and(|(status, ..)| status == ConditionStatus::False);
    let ready = conditions::get(&before.conditions, conditions::READY);
    if o.silent && before.boot_id.is_some() {
        let (reason, message) = match parked {
            true => (Word::HostOff, "the DPU is powered off with its host"),
            false => (Word::AgentSilent, "the agent of the DPU has not renewed its Lease for five seconds"),
        };
        set(conditions::READY, ConditionStatus::Unknown, reason.as_str(), message);
    } else {
        // Until the agent has said again how it is.
        ours.extend(ready.filter(|ready| ready::is_of_the_controller(ready)).cloned());
    }
    if let (true, Some(first)) = (asked, went_back::asked_of(dpu)) {
        let said = ours.iter_mut().filter(|said| said.type_ == conditions::EXPOSURES_KNOWN);
        said.for_each(|said| said.observed_generation = Some(first));
    }
    let verdict = orphans::judge(o, now);
    let went_back_handled = went_back::handled(o);
    let status = Status {
        namespace,
        releasable: verdict.releasable,
        verified_bmc,
        verified_host,
        went_back_handled,
        conditions: ours,
    };
    let same = is_told(&status, before);
    let again = asked.then(|| now + went_back::EVERY);
    let looked_at = (shares_power && o.silent) || [BMC_NOT_READ, PROTOCOL_UNSUPPORTED, MISMATCH].contains(&reason);
    Plan {
        action: action(o, before),
        status: (!same).then_some(status),
        bmc: verdict.bmc.max(if looked_at { BmcNeed::Slow } else { BmcNeed::None }),
        raise: verdict.raise,
        wake_at: [again, verdict.wake_at, discovery.as_ref().and_then(|said| said.again)].into_iter().flatten().min(),
        discover: discovery.and_then(|said| said.begins),
        is_to_be_remembered: is_to_be_remembered(o),
        own_bmc: match own_bmc::name(dpu) {
            Some(_) if asked && o.silent => BmcNeed::Now,
            Some(_) if !own_bmc::is_verified(dpu, &o.own_bmc) && !o.silent => BmcNeed::Slow,
            _ => BmcNeed::None,
        },
    }
}

/// The first Dpu that names a server is on record there, so that no machine with `boot.strategy: Auto` is installed on that server while a Dpu is
/// deleted, to be registered anew, or assigned elsewhere.
fn is_to_be_remembered(o: &Observed) -> bool {
    o.hardware.as_ref().is_some_and(|hardware| annotation(&hardware.metadata, labels::HAD_DPU).is_none())
}

fn action(o: &Observed, before: &DpuStatus) -> Option<Action> {
    let meta = &o.dpu.metadata;
    let (deleting, kept) = (meta.deletion_timestamp.is_some(), has_finalizer(meta, labels::FINALIZER_IN_USE));
    match (o.dpu.spec.is_admitted(), o.prepared) {
        _ if deleting && kept && !o.used => Some(Action::LetGo),
        (true, _) if !deleting && !kept => Some(Action::Protect),
        (true, false) => Some(Action::Prepare),
        (false, false) if before.namespace.is_some() => Some(Action::Revoke),
        _ => None,
    }
}

/// The controller has said so already.
fn is_told(status: &Status, before: &DpuStatus) -> bool {
    status.namespace == before.namespace
        && status.releasable == before.releasable
        && status.verified_bmc == before.verified_bmc
        && status.verified_host == before.verified_host
        && status.went_back_handled == before.went_back_handled
        && status.conditions.iter().all(|c| conditions::get(&before.conditions, &c.type_) == Some(c))
        // What is there only while it has something to say.
        && [BOOT_OPTION_KNOWN, SERVES_HOST].iter().all(|type_| {
            let [says, said] = [&status.conditions, &before.conditions].map(|all| conditions::get(all, type_).is_some());
            says || !said
        })
}

/// The condition HostVerified, and what it rests on. That stands in the status until another Hardware or serial number is expected:
/// the BMC of a server that is idle need not be read again and again.
fn verified(o: &Observed) -> ((ConditionStatus, &'static str, String), Option<VerifiedHost>) {
    let dpu = &o.dpu;
    let hardware = dpu.spec.hardware_ref.as_ref().map(|reference| reference.name.as_str()).unwrap_or_default();
    let serial = identity::expected(dpu).unwrap_or_default();
    let record =
        |reported| VerifiedHost { hardware_name: hardware.to_owned(), serial_number: serial.to_owned(), reported };
    let finding = |reported: bool| match reported {
        true => (ConditionStatus::True, MATCHES, format!("the BMC of '{hardware}' reports '{serial}', as expected")),
        false => {
            let message = format!("the agent reports '{serial}', the BMC of '{hardware}' reports no serial number");
            (ConditionStatus::Unknown, NOT_REPORTED, message)
        }
    };
    let found = |reported| (finding(reported), Some(record(reported)));
    match identity::check(dpu, o.host.last()) {
        Identity::NotAsked => {
            let message = "neither spec.hardwareRef.serialNumber nor the agent says which serial number to expect";
            ((ConditionStatus::Unknown, "NotAsked", message.to_owned()), None)
        }
        Identity::Matches => found(true),
        Identity::NotReported => found(false),
        Identity::Differs(message) => ((ConditionStatus::False, MISMATCH, message), None),
        Identity::Unread => {
            let stood = dpu.status.as_ref().and_then(|status| status.verified_host.as_ref());
            if let Some(reported) = stood.map(|stood| stood.reported).filter(|it| stood == Some(&record(*it))) {
                return found(reported);
            }
            let message = match (&o.problem, hardware) {
                (_, "") => "spec.hardwareRef is not set".to_owned(),
                (Some(problem), _) => format!("the BMC of '{hardware}' cannot be read: {}", problem.message()),
                (None, _) => format!("the controller is reading the BMC of '{hardware}'"),
            };
            ((ConditionStatus::Unknown, o.problem.as_ref().map_or(BMC_NOT_READ, unread), message), None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::dpu::DpuSpec;

    pub(super) fn observed(power_domain: PowerDomain, silent: bool, power: Option<PowerState>) -> Observed {
        let mut dpu = Dpu::new("dpu-1", DpuSpec { approved: true, power_domain, ..DpuSpec::default() });
        dpu.metadata.finalizers = Some(vec![labels::FINALIZER_IN_USE.to_owned()]);
        dpu.status = Some(DpuStatus { boot_id: Some("b1".into()), ..DpuStatus::default() });
        let host = power.map_or(Seen::Unknown, |power| Seen::Fresh(HostObserved::with_power(power)));
        Observed {
            dpu: Arc::new(dpu),
            hardware: None,
            silent,
            host,
            host_read_at: None,
            problem: None,
            own_bmc: BmcSeen::default(),
            prepared: true,
            used: false,
            orphans: Vec::new(),
            heard: Heard::default(),
            site: Site::default(),
            asked: None,
            discovery: None,
        }
    }

    pub(super) fn word(plan: &Plan, type_: &str) -> String {
        let status = plan.status.as_ref().expect("something is new");
        conditions::get(&status.conditions, type_).map_or("none".into(), |c| format!("{} {}", c.status, c.reason))
    }

    #[test]
    fn a_silent_agent_is_unknown_and_with_its_host_off_parked() {
        let now = Timestamp::UNIX_EPOCH;
        let alive = plan(&observed(PowerDomain::Host, false, Some(PowerState::On)), now);
        assert_eq!(word(&alive, conditions::READY), "none", "that is the agent's word");
        let silent = plan(&observed(PowerDomain::Standby, true, Some(PowerState::Off)), now);
        assert_eq!(word(&silent, conditions::READY), "Unknown AgentSilent");
        assert_eq!(word(&silent, conditions::PARKED), "False NotParked");
        let parked = plan(&observed(PowerDomain::Host, true, Some(PowerState::Off)), now);
        assert_eq!(word(&parked, conditions::PARKED), "True HostOff");
        let unread = plan(&observed(PowerDomain::Host, true, None), now);
        assert_eq!(word(&unread, conditions::PARKED), "False NotParked", "unknown is not off");
        assert_eq!(unread.bmc, BmcNeed::Slow);
    }

    fn expecting(serial: &str, reported: Option<&str>) -> Observed {
        let mut o = observed(PowerDomain::Standby, false, reported.map(|_| PowerState::Off));
        let mut dpu = Dpu::clone(&o.dpu);
        dpu.spec.hardware_ref =
            Some(api::dpu::HardwareReference { name: "rack1-u07".into(), serial_number: Some(serial.into()) });
        o.dpu = Arc::new(dpu);
        if let Seen::Fresh(host) = &mut o.host {
            host.serial_number = reported.map(str::to_owned);
        }
        o
    }

    #[test]
    fn the_server_is_verified_once_and_again_when_another_is_expected() {
        let now = Timestamp::UNIX_EPOCH;
        let mut o = expecting("A1", None);
        let unread = plan(&o, now);
        assert_eq!(word(&unread, conditions::HOST_VERIFIED), "Unknown BmcNotRead");
        assert_eq!(unread.bmc, BmcNeed::Slow);
        let read = plan(&expecting("A1", Some("A1")), now);
        assert_eq!(word(&read, conditions::HOST_VERIFIED), "True SerialNumberMatches");
        assert_eq!(read.bmc, BmcNeed::None);
        let mut dpu = Dpu::clone(&o.dpu);
        dpu.metadata.generation = Some(2);
        let said = read.status.expect("new");
        let status = dpu.status.get_or_insert_default();
        (status.conditions, status.verified_host) = (said.conditions, said.verified_host);
        o.dpu = Arc::new(dpu.clone());
        let later = plan(&o, now);
        assert_eq!(word(&later, conditions::HOST_VERIFIED), "True SerialNumberMatches", "of a newer generation");
        assert_eq!(later.bmc, BmcNeed::None, "it is not read for ever");
        dpu.spec.hardware_ref.as_mut().expect("set").serial_number = Some("B2".into());
        o.dpu = Arc::new(dpu);
        assert_eq!(word(&plan(&o, now), conditions::HOST_VERIFIED), "Unknown BmcNotRead");
        let other = plan(&expecting("B2", Some("A1")), now);
        assert_eq!(word(&other, conditions::HOST_VERIFIED), "False SerialNumberMismatch");
        assert_eq!(other.bmc, BmcNeed::Slow, "until it is mended");
    }

    #[test]
    fn one_that_is_deleted_stays_until_nothing_is_attached() {
        let now = Timestamp::UNIX_EPOCH;
        let mut o = observed(PowerDomain::Standby, false, None);
        assert_eq!(plan(&o, now).action, None);
        let mut dpu = Dpu::clone(&o.dpu);
        let finalizers = dpu.metadata.finalizers.take();
        o.dpu = Arc::new(dpu.clone());
        assert_eq!(plan(&o, now).action, Some(Action::Protect));
        dpu.metadata.finalizers = finalizers;
        dpu.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
        (o.dpu, o.used) = (Arc::new(dpu), true);
        assert_eq!(plan(&o, now).action, None);
        o.used = false;
        assert_eq!(plan(&o, now).action, Some(Action::LetGo));
    }

    /// Whatever the Dpu is, and once.
    #[test]
    fn the_server_of_a_dpu_is_to_say_that_it_had_one() {
        let now = Timestamp::UNIX_EPOCH;
        let mut o = observed(PowerDomain::Standby, true, None);
        assert!(!plan(&o, now).is_to_be_remembered, "nobody says in which server it sits");
        let mut hardware = Hardware::default();
        o.hardware = Some(Arc::new(hardware.clone()));
        let mut dpu = Dpu::clone(&o.dpu);
        dpu.spec.approved = false;
        dpu.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
        for dpu in [o.dpu.clone(), Arc::new(dpu)] {
            o.dpu = dpu;
            assert!(plan(&o, now).is_to_be_remembered);
        }
        hardware.metadata.annotations = Some([(labels::HAD_DPU.to_owned(), "dpu-0".to_owned())].into());
        o.hardware = Some(Arc::new(hardware));
        assert!(!plan(&o, now).is_to_be_remembered, "of an earlier one too");
    }

    #[test]
    fn a_status_that_is_so_already_is_not_written_again() {
        let now = Timestamp::UNIX_EPOCH;
        let mut o = observed(PowerDomain::Standby, false, None);
        let status = plan(&o, now).status.expect("new");
        let mut dpu = Dpu::clone(&o.dpu);
        let before = dpu.status.get_or_insert_default();
        before.namespace = status.namespace;
        before.conditions = status.conditions;
        o.dpu = Arc::new(dpu);
        assert!(plan(&o, now).status.is_none());
    }
}
