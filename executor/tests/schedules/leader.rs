//! One life of a controller around the real plan of `planner::machine`: gather from caches that lag, plan, act, write the status
//! (controller/src). Nothing keeps two of them from leading at once.

use super::bmc::{Bmc, Whose};
use super::caches::{KINDS, Listener, number};
use super::rules::Rule;
use super::site::Fence;
use super::time::{Ms, NEVER, Notify, Process};
use super::world::{Via, Watch, World, moment, timestamp};
use super::{DRIVER, FOREIGN, USER};
use api::dpu::{ConfirmedDown, Orphan};
use api::tinkerbell::Hardware;
use api::{BareMetalMachine, Dpu, HardwarePolicy, labels, names};
use executor::holder_pods::{is_ended, target};
use executor::{Confirmed, Error, act, hosts, writes};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use model::Rests;
use planner::dpu::OrphanSeen;
use planner::machine::observed::{
    Belongings, BmcSeen, DpuSeen, Gone, HolderPodSeen, Leftovers, VolumeSeen, label, name, uid,
};
use planner::machine::plan::Disruptive;
use planner::machine::{Action, BmcNeed, Plan, action_name, leftovers, plan};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// An agent is silent after this, once a reading from quorum has shown nothing newer.
const SILENT_AFTER: Ms = 4_500;

/// What is known of an agent's Lease.
#[derive(Debug, Clone, Copy, Default)]
struct Beat {
    value: Ms,
    since: Ms,
    confirmed: bool,
}

pub struct Leader {
    pub world: Rc<World>,
    pub process: Rc<Process>,
    pub watch: Rc<Watch>,
    pub bmcs: BTreeMap<String, (Rc<Bmc>, Rc<Bmc>)>,
    beats: RefCell<BTreeMap<String, Beat>>,
    pub problems: RefCell<BTreeMap<String, String>>,
    pub confirmed: Confirmed,
    /// UIDs of the pods that it has deleted.
    pub ended_pods: RefCell<BTreeSet<String>>,
    /// How the storage of a driver can be told to refuse.
    pub fences: BTreeMap<String, String>,
    /// By the name of a machine: the last plan had nothing to do.
    pub idle: RefCell<BTreeMap<String, bool>>,
    /// When an orphan of a DPU was first seen reported.
    first_seen: RefCell<BTreeMap<(String, String, u64), Timestamp>>,
    woken: BTreeMap<String, Rc<Notify>>,
}

impl Leader {
    pub fn start(world: &Rc<World>, process: &Rc<Process>, machines: &[String], lag: Ms) -> Rc<Self> {
        let woken: BTreeMap<String, Rc<Notify>> = machines.iter().map(|of| (of.clone(), Rc::default())).collect();
        let dpus: Vec<String> = world.site().servers.keys().cloned().collect();
        let news = Rc::new(Notify::default());
        let machine = |(of, wake): (&String, &Rc<Notify>)| Listener {
            wake: wake.clone(),
            kinds: KINDS,
            server: number(of).to_owned(),
        };
        let dpus_only = Listener { wake: news.clone(), kinds: &["dpus"], server: String::new() };
        let told = woken.iter().map(machine).chain([dpus_only]).collect();
        let watch = Watch {
            process: process.clone(),
            caches: RefCell::default(),
            frozen_until: Cell::new(0),
            lag,
            listeners: told,
        };
        let bmcs = dpus.iter().map(|dpu| (dpu.clone(), (Bmc::new(dpu, Whose::Host), Bmc::new(dpu, Whose::Dpu))));
        let native = world.site().native;
        let fences = native.is_told().then(|| (DRIVER.to_owned(), native.kind().to_owned()));
        let leader = Rc::new(Self {
            world: world.clone(),
            process: process.clone(),
            watch: Rc::new(watch),
            bmcs: bmcs.collect(),
            beats: RefCell::default(),
            problems: RefCell::default(),
            confirmed: Confirmed::default(),
            ended_pods: RefCell::default(),
            fences: fences.into_iter().collect(),
            idle: RefCell::default(),
            first_seen: RefCell::default(),
            woken,
        });
        let lead = leader.clone();
        world.time.spawn(process, async move { lead.lead(news).await });
        leader
    }

    async fn lead(self: Rc<Self>, news: Rc<Notify>) {
        self.world.list(&self.watch).await;
        let (world, process) = (&self.world, &self.process);
        let about = |dpu: &str| {
            let machine = self.woken.iter().find(|(machine, _)| number(machine) == number(dpu));
            machine.map(|(_, wake)| wake.clone()).into_iter().chain([news.clone()]).collect::<Vec<_>>()
        };
        for (dpu, (host, own)) in &self.bmcs {
            for bmc in [host, own] {
                world.time.spawn(process, bmc.clone().run(world.clone(), process.clone(), about(dpu)));
            }
        }
        for dpu in self.bmcs.keys() {
            self.hear(dpu).await;
            world.time.spawn(process, self.clone().listen(dpu.clone(), about(dpu)));
        }
        for machine in self.woken.keys() {
            world.time.spawn(process, self.clone().follow(machine.clone()));
        }
        loop {
            let wake_at = self.dpus().await;
            news.wait(&world.time, wake_at).await;
        }
    }

    /// The first list of Leases.
    async fn hear(&self, dpu: &str) {
        let of = dpu.to_owned();
        let read = move |world: &World| world.server(&of).beat;
        let what = || format!("list the Lease of {dpu}");
        let value = self.world.ask((&self.process, Via::ApiServer), what, read).await.unwrap_or_default();
        let beat = Beat { value, since: self.world.now(), confirmed: false };
        self.beats.borrow_mut().insert(dpu.to_owned(), beat);
    }

    /// Who is silent: nothing new for a while by its own clock, and nothing newer from quorum.
    async fn listen(self: Rc<Self>, dpu: String, listeners: Vec<Rc<Notify>>) {
        loop {
            self.world.time.sleep(500).await;
            let now = self.world.now();
            let beat = self.beats.borrow().get(&dpu).copied().unwrap_or_default();
            // The watch brings beats, unless it stands still.
            let told = now >= self.watch.frozen_until.get() && now >= self.process.cut_until.get();
            let quiet = !beat.confirmed && now - beat.since >= SILENT_AFTER;
            let value = match (told, quiet) {
                (true, _) if !quiet || self.world.server(&dpu).beat != beat.value => self.world.server(&dpu).beat,
                (_, true) => {
                    let of = dpu.clone();
                    let read = move |world: &World| world.server(&of).beat;
                    let what = || format!("get the Lease of {dpu}");
                    match self.world.ask((&self.process, Via::ApiServer), what, read).await {
                        Some(value) => value,
                        None => continue,
                    }
                }
                _ => continue,
            };
            let now = self.world.now();
            let (fresh, told) = if value != beat.value {
                (Beat { value, since: now, confirmed: false }, beat.confirmed || beat.value == 0)
            } else {
                (Beat { confirmed: beat.confirmed || quiet, ..beat }, quiet)
            };
            self.beats.borrow_mut().insert(dpu.clone(), fresh);
            if told {
                listeners.iter().for_each(|listener| listener.notify(&self.world.time));
            }
        }
    }

    /// Before a DPU counts as off: its Lease, from quorum, is still the one that fell silent. Its BMC's word is up to 30 s old.
    pub async fn lease_is_old(&self, dpu: &str) -> Result<(), Error> {
        let of = dpu.to_owned();
        let read = move |world: &World| world.server(&of).beat;
        let sent = self.world.ask((&self.process, Via::ApiServer), || format!("get the Lease of {dpu}"), read).await;
        let value = sent.ok_or_else(|| no_answer("get a Lease"))?;
        let known = self.beats.borrow().get(dpu).copied().unwrap_or_default();
        if known.value == value {
            // Of two that ask at once, the first may have learnt that it is not silent.
            return if self.is_silent(dpu) { Ok(()) } else { Err(renewed(dpu)) };
        }
        let beat = Beat { value, since: self.world.now(), confirmed: false };
        self.beats.borrow_mut().insert(dpu.to_owned(), beat);
        Err(renewed(dpu))
    }

    fn is_silent(&self, dpu: &str) -> bool {
        self.beats.borrow().get(dpu).is_none_or(|beat| beat.value == 0 || beat.confirmed)
    }

    pub fn dpu_seen(&self, dpu: &Arc<Dpu>) -> DpuSeen {
        let dpu_name = name(&dpu.metadata).to_owned();
        let beat = self.beats.borrow().get(&dpu_name).copied().filter(|beat| beat.value > 0);
        let silent = self.is_silent(&dpu_name);
        let believed = silent && !self.world.keeps(Rule::SilenceIsNoProof);
        DpuSeen {
            dpu: if believed { confirmed_down(dpu) } else { dpu.clone() },
            silent,
            heard_at: beat.map(|beat| timestamp(beat.since)),
            boot_disk_reads: None,
            out_of_service: believed || self.world.server(&dpu_name).tainted,
            bmc: match dpu.spec.bmc_ref {
                Some(_) => self.bmcs[&dpu_name].1.seen(self.world.now()),
                None => Default::default(),
            },
            attached: Default::default(),
        }
    }

    /// What the controller says of the DPUs themselves.
    async fn dpus(&self) -> Ms {
        let mut wake_at = NEVER;
        let dpus: Vec<Arc<Dpu>> = self.watch.caches.borrow().dpus.all().cloned().collect();
        for dpu in dpus {
            let dpu_name = name(&dpu.metadata).to_owned();
            let (host, own) = &self.bmcs[&dpu_name];
            let seen = host.seen(self.world.now());
            let observed = planner::dpu::Observed {
                hardware: None,
                silent: self.is_silent(&dpu_name),
                host: if seen.problem.is_some() { Default::default() } else { seen.host },
                host_read_at: seen.read_at,
                problem: seen.problem,
                own_bmc: own.seen(self.world.now()),
                prepared: true,
                used: false,
                orphans: self.orphans(&dpu),
                dpu,
                heard: Default::default(),
                site: Default::default(),
                asked: None,
                discovery: None,
            };
            let plan = planner::dpu::plan(&observed, timestamp(self.world.now()));
            host.need(&self.world, "dpu", plan.bmc);
            own.need(&self.world, "dpu", plan.own_bmc);
            wake_at = plan.wake_at.map_or(wake_at, |at| wake_at.min(moment(at).max(self.world.now() + 5)));
            if let Some(status) = plan.status {
                let rests = match status.releasable.is_empty() {
                    true => Rests::default(),
                    false => Rests::on(&observed.dpu.metadata),
                };
                let say = move |dpu: &mut Dpu| {
                    let there = dpu.status.get_or_insert_default();
                    there.releasable = status.releasable;
                    there.verified_bmc = status.verified_bmc;
                    there.verified_host = status.verified_host;
                    let there = &mut there.conditions;
                    for said in status.conditions {
                        match there.iter_mut().find(|condition| condition.type_ == said.type_) {
                            Some(condition) => *condition = said,
                            None => there.push(said),
                        }
                    }
                };
                // If it fails, the next event finds it as it was.
                if let Ok(dpu) = self.world.change(&self.process, ("", &dpu_name), rests, say).await {
                    self.watch.caches.borrow_mut().dpus.put(dpu);
                }
            }
        }
        wake_at
    }

    fn orphans(&self, dpu: &Dpu) -> Vec<OrphanSeen> {
        let caches = self.watch.caches.borrow();
        let mut first_seen = self.first_seen.borrow_mut();
        let reported = dpu.status.as_ref().map(|status| status.orphans.clone()).unwrap_or_default();
        let key = |orphan: &Orphan| (name(&dpu.metadata).to_owned(), orphan.uid.clone(), orphan.epoch);
        first_seen.retain(|of, _| of.0 != name(&dpu.metadata) || reported.iter().any(|orphan| key(orphan) == *of));
        let now = timestamp(self.world.now());
        let seen = reported.into_iter().map(|orphan| OrphanSeen {
            since: *first_seen.entry(key(&orphan)).or_insert(now),
            hold: orphan.volume.as_ref().and_then(|v| caches.holds.get("", &names::hold(&v.driver, &v.volume_handle))),
            vnic: None,
            orphan,
        });
        seen.collect()
    }

    /// One machine, for ever.
    async fn follow(self: Rc<Self>, machine: String) {
        let wake = self.woken[&machine].clone();
        let mut failures = 0u32;
        loop {
            let until = match self.rounds(&machine).await {
                Ok(at) => {
                    failures = 0;
                    at.map_or(NEVER, |at| at.max(self.world.now() + 5))
                }
                Err(_) => {
                    failures += 1;
                    self.world.now() + (100 << failures.min(6))
                }
            };
            // News end a back-off, too.
            wake.wait(&self.world.time, until).await;
        }
    }

    async fn rounds(&self, machine_name: &str) -> Result<Option<Ms>, Error> {
        for _ in 0..16 {
            let Some(machine) = self.watch.caches.borrow().machines.get(USER, machine_name) else {
                return self.leftovers(machine_name).await;
            };
            let o = self.gather(machine.clone());
            let plan = plan(&o, timestamp(self.world.now()));
            self.want(machine_name, plan.status.hardware_name.as_deref(), (plan.bmc, &plan.dpu_bmcs));
            self.idle.borrow_mut().insert(machine_name.to_owned(), plan.is_empty());
            if plan.is_empty() {
                self.write(&machine, &plan).await?;
                return Ok(plan.wake_at.map(moment));
            }
            let told = Told { actions: &plan.actions, disruptive: plan.disruptive.as_ref() };
            if let Err(error) = self.act_all(act::Owner::Machine(&machine), machine_name, told).await {
                // What is known is told, whatever failed.
                let _ = self.write(&machine, &plan).await;
                return Err(error);
            }
            if let (true, Some(disruptive)) = (plan.actions.is_empty(), &plan.disruptive) {
                self.disrupt(&machine, &plan, disruptive).await?;
            }
        }
        self.woken[machine_name].notify(&self.world.time);
        Ok(None)
    }

    async fn act_all(&self, owner: act::Owner<'_>, machine_name: &str, plan: Told<'_>) -> Result<(), Error> {
        self.world.note(|| format!("{} plans for {machine_name}: {plan:?}", self.process.name));
        let result = act::all(self, owner, plan.actions).await;
        if let Err(error) = &result {
            self.world.note(|| format!("{}: {error}", self.process.name));
        }
        result
    }

    /// What a machine that is no more has left.
    async fn leftovers(&self, machine_name: &str) -> Result<Option<Ms>, Error> {
        let mut wake_at = None;
        let gone = self.gone(machine_name);
        self.idle.borrow_mut().insert(machine_name.to_owned(), gone.is_none());
        if let Some(uid) = gone {
            let of = Gone { uid: uid.clone(), namespace: USER.to_owned() };
            let hardware = self.watch.caches.borrow().hardware.all().cloned().collect();
            let own = Belongings { hardware, ..self.belongings(&uid, &BTreeSet::new()) };
            let mut left = Leftovers { of, own };
            left.own.bmc = self.bmc(leftovers::server(&left));
            let plan = leftovers::plan(&left, timestamp(self.world.now()));
            self.want(machine_name, plan.hardware_name.as_deref(), (plan.bmc, &plan.dpu_bmcs));
            wake_at = plan.wake_at.map(moment);
            if !plan.actions.is_empty() && !self.is_there(uid).await? {
                let told = Told { actions: &plan.actions, disruptive: plan.disruptive.as_ref() };
                self.act_all(act::Owner::Gone(&left.of), machine_name, told).await?;
                self.woken[machine_name].notify(&self.world.time);
            }
        }
        Ok(wake_at)
    }

    /// From quorum.
    async fn is_there(&self, machine_uid: String) -> Result<bool, Error> {
        let list = move |world: &World| {
            let is_it = |machine: &Arc<BareMetalMachine>| uid(&machine.metadata) == machine_uid;
            world.objects().all::<BareMetalMachine>().any(is_it)
        };
        let sent = self.world.ask((&self.process, Via::ApiServer), || "list machines".to_owned(), list).await;
        sent.ok_or_else(|| no_answer("list machines"))
    }

    /// Whose something is that was made for a machine of this name, of which there is none in the cache; or who protects a claim
    /// and is no more: what protects it has no name.
    fn gone(&self, machine_name: &str) -> Option<String> {
        let caches = self.watch.caches.borrow();
        let is_there = |uid: &str| caches.machines.all().any(|machine| machine.metadata.uid.as_deref() == Some(uid));
        let mark = |meta: &ObjectMeta| {
            let marks = meta.annotations.iter().flatten().filter_map(|(key, _)| key.strip_prefix(labels::IN_USE_BY));
            marks.filter(|uid| !is_there(uid)).map(str::to_owned).next()
        };
        let of_it = |meta: &ObjectMeta| match label(meta, labels::MACHINE) == Some(machine_name) {
            true => label(meta, labels::MACHINE_UID).map(str::to_owned),
            false => None,
        };
        let mut owners = caches.disks.all().map(|disk| &disk.spec.owner).filter(|owner| owner.name == machine_name);
        let mut holds = caches.holds.all().filter(|hold| hold.spec.holder.is_some());
        owners
            .next()
            .map(|owner| owner.uid.clone())
            .or_else(|| holds.find_map(|hold| of_it(&hold.metadata)))
            .or_else(|| caches.volume_attachments.all().find_map(|va| of_it(&va.metadata)))
            .or_else(|| caches.pods.all().find_map(|pod| of_it(&pod.metadata)))
            .or_else(|| caches.claims.all().find_map(|claim| mark(&claim.metadata)))
    }

    /// The reading of a server's BMC.
    pub fn bmc(&self, server: Option<&Hardware>) -> BmcSeen {
        let host = server.and_then(|hardware| self.bmcs.get(&dpu_of(name(&hardware.metadata))));
        host.map(|(host, _)| host.seen(self.world.now())).unwrap_or_default()
    }

    fn want(&self, machine: &str, server: Option<&str>, (need, dpu_bmcs): (BmcNeed, &BTreeMap<String, BmcNeed>)) {
        let claimed = server.map(number);
        for (dpu, (host, own)) in &self.bmcs {
            let is_own = claimed == Some(number(dpu));
            host.need(&self.world, machine, if is_own { need.max(BmcNeed::Slow) } else { BmcNeed::None });
            let mut needs = dpu_bmcs.iter().filter(|(bmc, _)| **bmc == bmc_of(dpu));
            own.need(&self.world, machine, needs.next().map(|(_, need)| *need).unwrap_or_default());
        }
    }

    pub fn policy(&self) -> Arc<HardwarePolicy> {
        let mut policy = HardwarePolicy::new("all", Default::default());
        policy.metadata.namespace = Some(super::INVENTORY.to_owned());
        Arc::new(policy)
    }

    /// Writes the status if it says anything new.
    async fn write(&self, machine: &Arc<BareMetalMachine>, plan: &Plan) -> Result<(), Error> {
        let machine_name = name(&machine.metadata);
        let Some(current) = self.watch.caches.borrow().machines.get(USER, machine_name) else { return Ok(()) };
        if current.metadata.uid != machine.metadata.uid || current.status.as_ref() == Some(&plan.status) {
            return Ok(());
        }
        let mut updated = BareMetalMachine::clone(&current);
        updated.status = Some(plan.status.clone());
        match writes::change_status(self, &*current, &updated).await {
            Err(Error::NotFound { .. }) => Ok(()),
            result => result.map(drop),
        }
    }

    /// The one disruptive action of a plan: first its record, then itself.
    async fn disrupt(
        &self,
        machine: &Arc<BareMetalMachine>,
        plan: &Plan,
        disruptive: &Disruptive,
    ) -> Result<(), Error> {
        let machine_name = name(&machine.metadata);
        let current = self.watch.caches.borrow().machines.get(USER, machine_name);
        if current.is_none_or(|current| current.metadata.resource_version != machine.metadata.resource_version) {
            self.woken[machine_name].notify(&self.world.time);
            return Ok(());
        }
        self.write(machine, plan).await?;
        let hardware = plan.status.hardware_name.clone().unwrap_or_default();
        hosts::confirm_claim(self, uid(&machine.metadata), &hardware).await?;
        let (bmc, _) = &self.bmcs[&dpu_of(&hardware)];
        match disruptive {
            Disruptive::Power(order) => {
                self.world.note(|| format!("{} sends {} to {hardware}", self.process.name, action_name(order.action)));
                match bmc.power(&self.world, &self.process, order.action).await {
                    true => Ok(()),
                    false => Err(no_answer("a BMC")),
                }
            }
            Disruptive::ConfigureBoot(change) => {
                bmc.configure_boot(&self.world, &self.process, change.clone()).await;
                Ok(())
            }
            Disruptive::ChangeMedium(change) => panic!("{change} was planned, of a server with a DPU"),
        }
    }
}

fn no_answer(what: &str) -> Error {
    Error::Unavailable { what: what.to_owned(), message: "no answer".to_owned() }
}

fn renewed(dpu: &str) -> Error {
    Error::NotConfirmed { what: format!("get the Lease of {dpu}"), message: "it was renewed".to_owned() }
}

/// A plan, for people.
struct Told<'a> {
    actions: &'a [Action],
    disruptive: Option<&'a Disruptive>,
}

impl std::fmt::Debug for Told<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = |text: String| text.split([' ', '(', '{']).next().unwrap_or_default().to_owned();
        let all: Vec<String> = self.actions.iter().map(|action| word(format!("{action:?}"))).collect();
        write!(f, "{} {:?}", all.join(" "), self.disruptive)
    }
}

/// As if an administrator had said that it is down.
fn confirmed_down(dpu: &Dpu) -> Arc<Dpu> {
    let boot_id = dpu.status.as_ref().and_then(|status| status.boot_id.clone()).unwrap_or_default();
    let mut dpu = dpu.clone();
    dpu.spec.confirmed_down = Some(ConfirmedDown { boot_id });
    Arc::new(dpu)
}

pub fn hardware_of(dpu: &str) -> String {
    dpu.replace("dpu-", "server-")
}

pub fn dpu_of(hardware: &str) -> String {
    hardware.replace("server-", "dpu-")
}

pub fn bmc_of(dpu: &str) -> String {
    format!("{dpu}-bmc")
}

/// The volume behind a claim. Its handle is the claim's name.
pub fn volume(world: &World, claim: &str) -> VolumeSeen {
    let by_kubelet = world.site().volumes.get(claim).is_some_and(|volume| volume.fence == Fence::Kubelet);
    VolumeSeen {
        name: format!("pv-{claim}"),
        driver: if by_kubelet { FOREIGN } else { DRIVER }.to_owned(),
        handle: claim.to_owned(),
        attributes: BTreeMap::new(),
    }
}

pub fn pod_seen(pod: &k8s_openapi::api::core::v1::Pod) -> HolderPodSeen {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    HolderPodSeen {
        target: target(&pod.metadata),
        attachment_uid: label(&pod.metadata, labels::ATTACHMENT_UID).unwrap_or_default().to_owned(),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
        running: phase == Some("Running"),
        ended: is_ended(pod),
        deleting: pod.metadata.deletion_timestamp.is_some(),
        message: String::new(),
    }
}

pub fn namespace(dpu: &str) -> String {
    names::dpu_namespace(dpu)
}
