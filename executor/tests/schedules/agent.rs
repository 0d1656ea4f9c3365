//! One life of an agent around the real plan of `planner::agent`: gather, plan, take the steps, tell (dpu-agent/src). What it
//! does to its own DPU is a request too, which may come late; and not after the DPU has rebooted.

use super::caches::{Cache, Listener, number};
use super::rules::Rule;
use super::site::Connection;
use super::time::{Doing, Ms, Notify, Process, all};
use super::world::{Via, Watch, World, timestamp};
use api::attachment::{DiskAttachmentStatus, FenceIdentity};
use api::conditions::{self, ConditionStatus};
use api::dpu::{DpuCapacity, Orphan};
use api::machine::AttachPhase;
use api::{DiskAttachment, Dpu, labels, names};
use jiff::Timestamp;
use model::{Error, Rests};
use planner::agent::{
    Attachment, Connected, Entry, Exposures, Failure, FailureClass, Key, Observed, Plan, Report, Step, StepKind, Word,
    disk_status, plan,
};
use planner::connector::KUBELET;
use planner::exposure::{Exposure, ExposureId, FunctionKind, Limits, Presence};
use planner::seen::Seen;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

pub const SIZE: u64 = 1 << 30;
const CAPACITY: DpuCapacity = DpuCapacity { disks: 16, nics: 16, hot_plug_ports: 14 };
/// A Hide is acknowledged by a running guest after this.
const LET_GO: Ms = 300;
const PERIOD: Ms = 10_000;
const AGAIN: Ms = 2_000;

pub struct Agent {
    world: Rc<World>,
    process: Rc<Process>,
    dpu: String,
    boot: u32,
    wake: Rc<Notify>,
    watch: Rc<Watch>,
    /// Its Lease was renewed in this life. Before, nothing is claimed and nothing is said of this boot: *LeaseIsUnchanged* reads that.
    has_beaten: Cell<bool>,
    failures: RefCell<BTreeMap<(String, StepKind), Failure>>,
    hidden_at: RefCell<BTreeMap<String, Timestamp>>,
}

/// As the storage knows it.
pub fn identity(id: &ExposureId) -> String {
    format!("model.{}.{}", id.uid, id.epoch)
}

fn class(error: Error) -> FailureClass {
    match error {
        Error::NotFound => FailureClass::NotFound,
        Error::Conflict | Error::AlreadyExists => FailureClass::Conflict,
        Error::NoAnswer | Error::Unreachable => FailureClass::Unreachable,
        Error::Refused => FailureClass::Unauthorized,
    }
}

impl Agent {
    /// A new life on this boot.
    pub fn start(world: &Rc<World>, process: &Rc<Process>, dpu: &str) {
        let wake = Rc::new(Notify::default());
        let watch = Rc::new(Watch {
            process: process.clone(),
            caches: RefCell::default(),
            frozen_until: Cell::new(0),
            lag: world.dice.pick(&[4, 4, 500]),
            listeners: vec![Listener { wake: wake.clone(), kinds: &["disks", "dpus"], server: number(dpu).to_owned() }],
        });
        let agent = Rc::new(Self {
            world: world.clone(),
            process: process.clone(),
            dpu: dpu.to_owned(),
            boot: world.server(dpu).boot,
            wake,
            watch,
            has_beaten: Cell::new(false),
            failures: RefCell::default(),
            hidden_at: RefCell::default(),
        });
        world.time.spawn(process, agent.clone().beat());
        world.time.spawn(process, agent.run());
    }

    async fn beat(self: Rc<Self>) {
        loop {
            let dpu = self.dpu.clone();
            let renew = move |world: &World| {
                let now = world.now();
                world.server(&dpu).beat = now;
            };
            let beat = self.world.ask((&self.process, Via::ApiServer), || "beats".to_owned(), renew).await;
            if beat.is_some() && !self.has_beaten.replace(true) {
                self.wake.notify(&self.world.time);
            }
            self.world.time.sleep(1_000).await;
        }
    }

    async fn run(self: Rc<Self>) {
        // The record alone until the first list has come.
        self.world.list(&self.watch).await;
        loop {
            let pause = self.settle().await;
            self.wake.wait(&self.world.time, self.world.now() + pause).await;
        }
    }

    fn attachments(&self) -> Vec<Attachment> {
        let caches = self.watch.caches.borrow();
        self.own(&caches.disks).map(|disk| Attachment::from_disk(disk)).collect()
    }

    fn own<'a>(&self, disks: &'a Cache<DiskAttachment>) -> impl Iterator<Item = &'a Arc<DiskAttachment>> + use<'a> {
        let namespace = names::dpu_namespace(&self.dpu);
        disks.all().filter(move |disk| disk.metadata.namespace.as_deref() == Some(&namespace))
    }

    fn observe(&self, attachments: Seen<Vec<Attachment>>) -> Observed {
        let site = self.world.site();
        let server = &site.servers[&self.dpu];
        let native = server.connected.iter().filter(|(_, there)| there.pod.is_none());
        let accepts = |(id, there): &(&ExposureId, &Connection)| site.volumes[&there.handle].accepts(id);
        let connected =
            |(id, is_up): (&ExposureId, bool)| Connected { id: id.clone(), size_bytes: if is_up { SIZE } else { 0 } };
        let native = native.map(|seen| connected((seen.0, accepts(&seen)))).collect();
        let by_pod = server.connected.iter().filter_map(|(id, there)| Some((id, there.pod.as_ref()?)));
        let by_pod = by_pod.map(|(id, pod)| connected((id, server.pods.contains_key(pod))));
        let connections = BTreeMap::from([
            (labels::CSI_DRIVER.to_owned(), Seen::Fresh(native)),
            (KUBELET.to_owned(), Seen::Fresh(by_pod.collect())),
        ]);
        let shown = &server.shown;
        let mut hidden_at = self.hidden_at.borrow_mut();
        hidden_at.retain(|uid, _| shown.iter().any(|exposure| exposure.id.uid == *uid));
        Observed {
            now: timestamp(self.world.now()),
            dpu_name: self.dpu.clone(),
            boot_id: server.boot_id(),
            bounds: Limits::default(),
            attachments,
            record: server.record.clone(),
            exposures: Exposures::new(&Seen::Fresh(server.shown.clone()), &Seen::Fresh(Vec::new())),
            recovery: None,
            connections,
            ports: Seen::Fresh(Vec::new()),
            released: server.released.clone(),
            word: self.watch.caches.borrow().dpus.get("", &self.dpu).map(|dpu| Word::of(&dpu)).unwrap_or_default(),
            seeds: server.seeds.clone(),
            erasers: BTreeMap::new(),
            imports: BTreeMap::new(),
            hidden_at: hidden_at.clone(),
            not_in_force_since: BTreeMap::new(),
            ungranted_since: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            guests: BTreeMap::new(),
            failures: self.failures.borrow().clone(),
        }
    }

    /// Works until there is nothing left to do; how long to wait then.
    async fn settle(&self) -> Ms {
        for _ in 0..32 {
            // Nothing is asked or told before the first renewal.
            let joined = self.has_beaten.get();
            let stale = Seen::Stale { value: self.attachments(), since: timestamp(self.world.now()) };
            let mut observed = self.observe(stale);
            let mut decided = plan(&observed);
            if decided.needs_fresh_list
                && joined
                && let Some((fresh, word)) = self.list().await
            {
                observed = Observed { word, ..self.observe(Seen::Fresh(fresh)) };
                decided = plan(&observed);
            }
            let acted = self.act(&decided).await;
            let told = joined && self.tell(&observed, &decided).await;
            if !acted {
                let look_again = decided.look_again.map_or(PERIOD, |look| look.as_millis() as Ms).clamp(1, PERIOD);
                return if told && !decided.needs_fresh_list { look_again } else { look_again.min(AGAIN) };
            }
        }
        AGAIN
    }

    /// From quorum.
    async fn list(&self) -> Option<(Vec<Attachment>, Word)> {
        let (namespace, dpu) = (names::dpu_namespace(&self.dpu), self.dpu.clone());
        let read = move |world: &World| {
            let objects = world.objects();
            let own = objects.all::<DiskAttachment>().filter(|d| d.metadata.namespace.as_deref() == Some(&namespace));
            let own = own.map(|disk| Attachment::from_disk(disk)).collect();
            (own, objects.get::<Dpu>("", &dpu).map(|dpu| Word::of(&dpu)).unwrap_or_default())
        };
        self.world.ask((&self.process, Via::ApiServer), || "lists".to_owned(), read).await
    }

    async fn act(&self, plan: &Plan) -> bool {
        let steps: Vec<&Step> = plan.items.iter().filter_map(|item| item.step.as_ref()).chain(&plan.clear).collect();
        let taken: Vec<Doing<'_, Result<(), Error>>> =
            steps.iter().map(|step| Box::pin(self.take(step)) as _).collect();
        for (step, result) in steps.iter().zip(all(taken).await) {
            let key = (step.uid().to_owned(), step.kind());
            let mut failures = self.failures.borrow_mut();
            let Err(error) = result else {
                failures.remove(&key);
                if matches!(step, Step::Hide { .. }) {
                    self.hidden_at.borrow_mut().insert(key.0, timestamp(self.world.now()));
                }
                continue;
            };
            let count = failures.get(&key).filter(|f| f.step == **step).map_or(1, |f| f.count + 1);
            let (message, at) = (format!("{error:?}"), timestamp(self.world.now()));
            failures.insert(key, Failure { step: (*step).clone(), class: class(error), message, count, at });
        }
        !steps.is_empty()
    }

    /// A request to a part of its own DPU.
    async fn local<T: 'static>(
        &self,
        what: &Step,
        act: impl FnOnce(&World, &str) -> Result<T, Error> + 'static,
    ) -> Result<T, Error> {
        let (dpu, boot) = (self.dpu.clone(), self.boot);
        let act = move |world: &World| {
            let server = world.server(&dpu);
            let same = server.dpu_on && server.boot == boot;
            drop(server);
            if same { act(world, &dpu) } else { Err(Error::Unreachable) }
        };
        let name = || format!("{:?} {}", what.kind(), what.uid());
        self.world.ask((&self.process, Via::Outside), name, act).await.unwrap_or(Err(Error::NoAnswer))
    }

    async fn take(&self, step: &Step) -> Result<(), Error> {
        match step {
            Step::Claim { .. } | Step::Finish { .. } if !self.has_beaten.get() => Err(Error::Unreachable),
            Step::Claim { key, id, shown } => self.claim(key, id, *shown).await,
            Step::Connect { id, volume } => {
                let (id, volume) = (id.clone(), volume.clone());
                let name = if self.world.keeps(Rule::ConnectionsAreNew) { self.world.another() } else { 0 };
                self.local(step, move |world, dpu| {
                    if !world.site().volumes[&volume.handle].accepts(&id) {
                        return Err(Error::Refused);
                    }
                    let mut server = world.server(dpu);
                    let pod = volume.holder.map(|pod| pod.uid);
                    if let Some(pod) = &pod {
                        if !server.pods.contains_key(pod) {
                            return Err(Error::NotFound);
                        }
                        server.used.insert(pod.clone(), id.clone());
                    }
                    server.connected.entry(id).or_insert(Connection { handle: volume.handle, name, pod });
                    Ok(())
                })
                .await
            }
            Step::WriteSeed { id, .. } => {
                let uid = id.uid.clone();
                self.local(step, move |world, dpu| {
                    world.server(dpu).seeds.insert(uid);
                    Ok(())
                })
                .await
            }
            Step::ExposeDisk { id, driver, .. } => {
                let (id, of_volume) = (id.clone(), driver.is_some());
                self.world.server(&self.dpu).record.entry(id.uid.clone()).and_modify(|entry| entry.shown = true);
                let backend = self.world.server(&self.dpu).connected.get(&id).map(|there| there.name);
                self.local(step, move |world, dpu| {
                    let mut server = world.server(dpu);
                    // The backend is the name of the connection, and goes with it; a device goes with its pod, too.
                    let is_it = |there: &Connection| {
                        Some(there.name) == backend
                            && there.pod.as_ref().is_none_or(|pod| server.pods.contains_key(pod))
                    };
                    if of_volume && !server.connected.get(&id).is_some_and(is_it) {
                        return Err(Error::NotFound);
                    }
                    if !server.shown.iter().any(|exposure| exposure.id == id) {
                        server.shown.push(Exposure {
                            id,
                            kind: FunctionKind::Disk,
                            presence: Presence::Present,
                            size_bytes: Some(SIZE),
                            limits: Limits::default(),
                            representor: None,
                            link_up: None,
                        });
                    }
                    Ok(())
                })
                .await
            }
            Step::NoteRelease { id } => {
                self.world.server(&self.dpu).released.insert(id.clone());
                Ok(())
            }
            Step::Hide { id, .. } => {
                let (id, boot) = (id.clone(), self.boot);
                self.local(step, move |world, dpu| {
                    world.hide(dpu, boot, &id, LET_GO);
                    Ok(())
                })
                .await
            }
            Step::Disconnect { id, .. } => {
                let id = id.clone();
                self.local(step, move |world, dpu| {
                    world.server(dpu).connected.remove(&id);
                    Ok(())
                })
                .await
            }
            Step::RemoveSeed { uid } => {
                self.world.server(&self.dpu).seeds.remove(uid);
                Ok(())
            }
            Step::Forget { uid } => {
                self.world.server(&self.dpu).record.remove(uid);
                Ok(())
            }
            Step::Finish { key } => self.finish(key).await,
            other => panic!("the model has no {other:?}"),
        }
    }

    /// *ActivatedFromQuorum*.
    async fn claim(&self, key: &Key, id: &ExposureId, shown: bool) -> Result<(), Error> {
        let there = self.world.get::<DiskAttachment>(&self.process, &key.namespace, &key.name).await?;
        let there = there.ok_or(Error::NotFound)?;
        let read = Attachment::from_disk(&there);
        if read.key.uid != id.uid || read.dpu_name != self.dpu || read.epoch != Some(id.epoch) || read.deleting {
            return Err(Error::Conflict);
        }
        let function = read.function.clone().map_err(|_| Error::Refused)?;
        let mut status = there.status.clone().unwrap_or_default();
        let boot_id = format!("boot-{}", self.boot);
        let identity = identity(id);
        status.fence = Some(FenceIdentity { boot_id: boot_id.clone(), identity: identity.clone(), epoch: id.epoch });
        (status.phase, status.exposed_boot_id) = (AttachPhase::Attaching, None);
        self.write(key, Rests::on(&there.metadata), status).await?;
        let limits = read.limits;
        let (key, id) = (key.clone(), id.clone());
        let entry = Entry { key, id, boot_id, identity, function, limits, import_done: None, shown };
        self.world.server(&self.dpu).record.insert(entry.id.uid.clone(), entry);
        Ok(())
    }

    fn seen(&self, key: &Key) -> Option<Arc<DiskAttachment>> {
        let there = self.watch.caches.borrow().disks.get(&key.namespace, &key.name);
        there.filter(|disk| disk.metadata.uid.as_ref() == Some(&key.uid))
    }

    async fn write(&self, key: &Key, rests: Rests, status: DiskAttachmentStatus) -> Result<Arc<DiskAttachment>, Error> {
        let change = move |disk: &mut DiskAttachment| disk.status = Some(status);
        let written = self.world.change(&self.process, (&key.namespace, &key.name), rests, change).await?;
        self.watch.caches.borrow_mut().disks.put(written.clone());
        Ok(written)
    }

    /// The end of *AgentDetaches*.
    async fn finish(&self, key: &Key) -> Result<(), Error> {
        let there = self.world.get::<DiskAttachment>(&self.process, &key.namespace, &key.name).await?;
        let forget = || drop(self.world.server(&self.dpu).record.remove(&key.uid));
        let known = self.seen(key);
        if let Some(there) = there.filter(|there| there.metadata.uid.as_ref() == Some(&key.uid)) {
            let mut status = there.status.clone().unwrap_or_default();
            (status.phase, status.exposed_boot_id) = (AttachPhase::Detaching, None);
            let there = self.write(key, Rests::on_uid(&key.uid), status).await?;
            forget();
            let let_go = |disk: &mut DiskAttachment| {
                disk.metadata.finalizers.iter_mut().for_each(|all| all.retain(|f| f != labels::FINALIZER_EXPOSED));
            };
            let names = (key.namespace.as_str(), key.name.as_str());
            match self.world.change(&self.process, names, Rests::on(&there.metadata), let_go).await {
                Ok(_) | Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(known) = known {
            self.watch.caches.borrow_mut().disks.forget(&known.metadata);
        }
        forget();
        Ok(())
    }

    async fn tell(&self, observed: &Observed, plan: &Plan) -> bool {
        let mut told = self.tell_dpu(plan.orphans.as_ref().unwrap_or(&observed.word.reported)).await;
        let attachments = observed.attachments.last().map(Vec::as_slice).unwrap_or_default();
        for item in plan.items.iter().filter(|item| item.step.is_none()) {
            let attachment = attachments.iter().find(|attachment| attachment.key.uid == item.key.uid);
            if let (Some(attachment), Some(report)) = (attachment, &item.report) {
                told &= self.tell_disk(attachment, report).await;
            }
        }
        told
    }

    async fn tell_disk(&self, attachment: &Attachment, report: &Report) -> bool {
        let key = &attachment.key;
        let before = self.seen(key);
        let before = before.as_ref().and_then(|disk| disk.status.as_ref());
        let none = DiskAttachmentStatus::default();
        let status = disk_status(before.unwrap_or(&none), attachment, report, timestamp(self.world.now()));
        if before == Some(&status) {
            return true;
        }
        let written = self.write(key, Rests::on_uid(&key.uid), status).await;
        matches!(written, Ok(_) | Err(Error::NotFound | Error::Conflict))
    }

    async fn tell_dpu(&self, orphans: &[Orphan]) -> bool {
        let (boot_id, shown) = {
            let server = self.world.server(&self.dpu);
            (server.boot_id(), server.shown.len() as u32)
        };
        let free = DpuCapacity { disks: CAPACITY.disks - shown, ..CAPACITY };
        let known = self.watch.caches.borrow().dpus.get("", &self.dpu);
        let now = timestamp(self.world.now());
        let is_said = |dpu: &Arc<Dpu>| {
            dpu.status.as_ref().is_some_and(|status| {
                status.boot_id.as_ref() == Some(&boot_id)
                    && status.allocatable.as_ref() == Some(&free)
                    && status.orphans == orphans
                    && conditions::is_true(&status.conditions, conditions::READY)
            })
        };
        if known.as_ref().is_some_and(is_said) {
            return true;
        }
        let orphans = orphans.to_vec();
        let say = move |dpu: &mut Dpu| {
            let status = dpu.status.get_or_insert_default();
            status.orphans = orphans;
            (status.boot_id, status.capacity) = (Some(boot_id), Some(CAPACITY));
            status.allocatable = Some(free);
            conditions::set(&mut status.conditions, conditions::READY, ConditionStatus::True, "Model", "", None, now);
        };
        let written = self.world.change(&self.process, ("", &self.dpu), Rests::default(), say).await;
        if let Ok(dpu) = &written {
            self.watch.caches.borrow_mut().dpus.put(dpu.clone());
        }
        written.is_ok()
    }
}
