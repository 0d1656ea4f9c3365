//! The loop: gather, plan, take the steps, gather again until there is nothing left to do; then tell, and wait.

use crate::act::{Actor, Server};
use crate::beats::Beats;
use crate::cluster::{Cluster, bounded};
use crate::guest::Guests;
use crate::interfaces::Pods;
use crate::metadata::Answers;
use crate::metrics::Metrics;
use crate::observed::Last;
use crate::placement::Placement;
use crate::serve::View;
use crate::watch::Desired;
use crate::{dpu_status, status};
use futures::future::join_all;
use jiff::Timestamp;
use kube::api::ListParams;
use planner::agent::{Attachment, Failure, FailureClass, Observed, Plan, Step, StepKind, Word, plan};
use planner::dpu::ready::Answer;
use planner::exposure::FunctionKind;
use planner::seen::Seen;
use ports::emulation::EmulationCapabilities;
use ports::{ErrorClass, PortError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Nothing was heard of for so long: look all the same.
const PERIOD: Duration = Duration::from_secs(10);
/// A status could not be written, or a list not be read.
const AGAIN: Duration = Duration::from_secs(2);
/// More rounds than any attachment has steps: a plan that never ends must not keep the thread.
const ROUNDS: usize = 32;

pub struct Reconciler {
    placement: Placement,
    actor: Actor,
    joined: watch::Receiver<Option<Cluster>>,
    desired: Arc<Desired>,
    view: Arc<View>,
    pods: Option<Arc<Pods>>,
    answers: Option<Arc<Answers>>,
    beats: Arc<Beats>,
    metrics: Arc<Metrics>,
    guests: Guests,
    last: Last,
    failures: BTreeMap<(String, StepKind), Failure>,
    hidden_at: BTreeMap<String, Timestamp>,
    capabilities: Option<EmulationCapabilities>,
    answer: Answer,
    /// Since when the places that are left are another number than was told.
    room_since: Option<Instant>,
    /// They were read while both disks and NICs could be told of.
    is_capability_whole: bool,
    /// A quorum list failed: not before this.
    list_after: Option<Instant>,
    /// The last attempt to present all disks at once failed: not before this.
    recover_after: Option<Instant>,
}

impl Reconciler {
    pub(crate) fn new(
        actor: Actor,
        joined: watch::Receiver<Option<Cluster>>,
        desired: Arc<Desired>,
        (view, pods, answers): (Arc<View>, Option<Arc<Pods>>, Option<Arc<Answers>>),
        (beats, metrics): (Arc<Beats>, Arc<Metrics>),
        placement: Placement,
    ) -> Self {
        Self {
            placement,
            actor,
            joined,
            desired,
            view,
            pods,
            answers,
            beats,
            metrics,
            guests: Guests::default(),
            last: Last::default(),
            failures: BTreeMap::new(),
            hidden_at: BTreeMap::new(),
            capabilities: None,
            answer: Answer::default(),
            room_since: None,
            is_capability_whole: false,
            list_after: None,
            recover_after: None,
        }
    }

    /// For ever.
    pub async fn run(mut self) {
        let guests = std::mem::take(&mut self.guests);
        let (beats, emulation) = (self.beats.clone(), self.actor.ports.emulation.clone());
        let (switch, wake) = (self.actor.ports.switch.clone(), self.actor.wake.clone());
        let rounds = async {
            loop {
                let pause = self.settle(&guests).await;
                tokio::select! {
                    biased;
                    () = tokio::time::sleep(pause) => {}
                    () = self.actor.wake.notified() => {}
                    () = self.beats.renewing.came() => {}
                    () = self.actor.ports.emulation.changed() => {}
                    () = self.actor.ports.switch.changed() => {}
                }
            }
        };
        tokio::join!(rounds, guests.run(switch, &wake), beats.boot_disk.run(emulation));
    }

    /// Works until there is nothing left to do; how long to wait then.
    async fn settle(&mut self, guests: &Guests) -> Duration {
        for _ in 0..ROUNDS {
            let began = Instant::now();
            self.collect_imports().await;
            // Before the gathering: what that knows was listed after the API server was last found to have gone back.
            let went_back = self.desired.is_listed().then(|| self.beats.went_back());
            let mut observed = self.last.gather(&self.actor, &self.desired, guests.seen()).await;
            if observed.ports.fresh().is_some() && !self.actor.is_sanitized() {
                match self.actor.sanitize().await {
                    Ok(()) => observed = self.last.gather(&self.actor, &self.desired, guests.seen()).await,
                    Err(error) => tracing::warn!(%error, "nothing is plugged before that"),
                }
            }
            observed.failures = self.failures.clone();
            observed.unanswered = self.answers.as_ref().map(|answers| answers.unanswered()).unwrap_or_default();
            let shown = observed.exposures.last().map(Vec::as_slice).unwrap_or_default();
            self.hidden_at.retain(|uid, _| shown.iter().any(|exposure| exposure.id.uid == *uid));
            observed.hidden_at = self.hidden_at.clone();
            // After the gathering: what it knows of the API server came through this session.
            let cluster = self.joined.borrow().clone();
            let desired = self.desired.clone();
            let server = cluster.as_ref().map(|cluster| Server { cluster, desired: &desired });
            let (observed, plan) = self.decide(observed, server).await;
            // Whether a pod's NIC is answered nobody waits for: each answer would be a write, and the kubelet looks after its containers.
            if self.pods.is_none() {
                guests.watch(&observed);
            }
            self.beats.boot_disk.watch(&observed, &*self.actor.ports.emulation).await;
            self.view.update(&observed, &plan);
            if let Some(pods) = &self.pods {
                pods.update(began, &self.desired, &plan);
            }
            if let Some(answers) = self.answers.as_ref().filter(|_| self.actor.is_sanitized()) {
                answers.update(&self.desired);
            }
            let recovered = self.recover(&plan).await;
            let acted = self.act(&plan, server, &observed).await || recovered;
            self.metrics.round(began.elapsed(), &observed);
            let told = match server {
                Some(server) => self.tell(&observed, &plan, server, went_back).await,
                None => true,
            };
            if !acted {
                let pause = plan.look_again.unwrap_or(PERIOD).min(PERIOD);
                return if told && !plan.needs_fresh_list { pause } else { pause.min(AGAIN) };
            }
        }
        tracing::warn!("still not settled after {ROUNDS} rounds");
        AGAIN
    }

    /// Plans, and reads the list of attachments from quorum if the plan hangs on it.
    async fn decide(&mut self, mut observed: Observed, server: Option<Server<'_>>) -> (Observed, Plan) {
        let first = plan(&observed);
        let may_list = self.list_after.is_none_or(|after| Instant::now() >= after);
        let (true, true, Some(server)) = (first.needs_fresh_list, may_list, server) else { return (observed, first) };
        match list(server.cluster, &self.actor.dpu_name).await {
            Ok((fresh, word)) => {
                self.list_after = None;
                (observed.attachments, observed.word) = (Seen::Fresh(fresh), word);
                let second = plan(&observed);
                (observed, second)
            }
            Err(error) => {
                tracing::warn!(%error, "something is here that no attachment explains: it stays until this list is read");
                self.list_after = Some(Instant::now() + AGAIN);
                (observed, first)
            }
        }
    }

    async fn collect_imports(&mut self) {
        for (uid, result) in self.actor.imports.ended().await {
            let step = self.actor.record.get(&uid).and_then(|entry| match entry.function {
                planner::agent::Function::Import(import) => {
                    Some(Step::StartImport { id: entry.id, import: Box::new(import) })
                }
                _ => None,
            });
            let result = result.and_then(|done| {
                self.actor
                    .record
                    .import_done(&uid, done)
                    .map_err(|error| crate::act::file_error("recording the import of", &uid, &error))
            });
            match (step, result) {
                (Some(step), Ok(())) => drop(self.failures.remove(&(uid, step.kind()))),
                (Some(step), failed) => self.note(&step, failed),
                (None, _) => {}
            }
        }
    }

    /// Whether disks were presented.
    async fn recover(&mut self, plan: &Plan) -> bool {
        let Some(wanted) = plan.recover.as_ref().filter(|_| self.recover_after.is_none_or(|at| Instant::now() >= at))
        else {
            return false;
        };
        tracing::info!(
            disks = wanted.disks.len(),
            partial = wanted.partial,
            "presenting all disks of the host at once"
        );
        match self.actor.recover(wanted).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "they are not presented, will try again");
                self.last.recovery_failed(&error);
                self.recover_after = Some(Instant::now() + AGAIN);
                false
            }
        }
    }

    /// Whether there was a step to take.
    async fn act(&mut self, plan: &Plan, server: Option<Server<'_>>, observed: &Observed) -> bool {
        let items = plan.items.iter().filter_map(|item| item.step.as_ref());
        let steps: Vec<&Step> = items.chain(&plan.clear).collect();
        for step in &plan.clear {
            tracing::warn!(uid = step.uid(), step = ?step.kind(), "no attachment explains it: taking it away");
        }
        let results = self.actor.take_all(&steps, server).await;
        for (step, result) in steps.iter().zip(results) {
            tracing::debug!(uid = step.uid(), step = ?step.kind(), ok = result.is_ok(), "took");
            self.metrics.took(step, &result);
            self.note(step, result);
        }
        let present = |uid: &String| {
            plan.items.iter().any(|item| item.key.uid == *uid)
                || observed.record.contains_key(uid)
                || plan.clear.iter().any(|step| step.uid() == uid)
        };
        self.failures.retain(|(uid, _), _| present(uid));
        !steps.is_empty()
    }

    fn note(&mut self, step: &Step, result: Result<(), PortError>) {
        let key = (step.uid().to_owned(), step.kind());
        let Err(error) = result else {
            if matches!(step, Step::Hide { .. }) {
                self.hidden_at.insert(step.uid().to_owned(), crate::clock::now());
            }
            // That an import was started is no success yet.
            let is_start = matches!(step, Step::StartImport { .. });
            if !is_start && self.failures.get(&key).is_some_and(|failure| failure.step == *step) {
                self.failures.remove(&key);
            }
            return;
        };
        let earlier = self.failures.get(&key).filter(|failure| failure.step == *step);
        let count = earlier.map_or(1, |failure| failure.count.saturating_add(1));
        if count.is_power_of_two() {
            tracing::warn!(uid = step.uid(), step = ?step.kind(), count, %error, "failed");
        }
        let failure = Failure {
            step: step.clone(),
            class: class(error.class),
            message: error.message,
            count,
            at: crate::clock::now(),
        };
        self.failures.insert(key, failure);
    }

    /// Whether all was told.
    async fn tell(&mut self, observed: &Observed, plan: &Plan, server: Server<'_>, went_back: Option<u64>) -> bool {
        let attachments = observed.attachments.last().map(Vec::as_slice).unwrap_or_default();
        let of = |uid: &str| attachments.iter().find(|attachment| attachment.key.uid == uid);
        // What has a step to take is told of when it has been taken.
        let idle = plan.items.iter().filter(|item| item.step.is_none() && !item.passes);
        let news = idle.filter_map(|item| Some((of(&item.key.uid)?, item.report.as_ref()?)));
        let told = join_all(
            news.map(|(attachment, report)| status::tell(&self.actor, server, attachment, report, observed.now)),
        )
        .await;
        if !plan.items.is_empty() || observed.attachments.last().is_some() {
            self.actor.written.retain(&plan.items);
        }
        if !self.is_capability_whole && observed.exposures.tells(FunctionKind::Disk) {
            self.capabilities = self.actor.ports.emulation.capabilities().await.ok();
            self.is_capability_whole = self.capabilities.is_some() && observed.exposures.fresh().is_some();
        }
        let capabilities = self.capabilities.as_ref();
        let orphans = plan.orphans.as_deref();
        let (ports, placement) = (&self.actor.ports, &self.placement);
        let taken_late = self.actor.taken_late();
        // Who presents no disks has no host that could boot from one.
        let (erasers, hold_disks) = match ports.pods.is_none() {
            true => (self.actor.erasers.machines(), self.actor.hold_disks.machines()),
            false => (Vec::new(), Vec::new()),
        };
        let seen = dpu_status::Seen {
            ports,
            placement,
            capabilities,
            observed,
            erasers: &erasers,
            hold_disks: &hold_disks,
            orphans,
            taken_late,
            went_back,
        };
        let renewing = &self.beats.renewing;
        let dpu =
            dpu_status::tell(server.cluster, &self.desired, seen, (&mut self.answer, &mut self.room_since, renewing))
                .await;
        if let Err(error) = &dpu {
            tracing::warn!(%error, "will try again");
        }
        dpu.is_ok() && told.into_iter().all(|told| told)
    }
}

/// From quorum: no resourceVersion is given. And what the Dpu says of those that are missing there.
async fn list(cluster: &Cluster, dpu_name: &str) -> Result<(Vec<Attachment>, Word), PortError> {
    let (disks, nics, dpus) = (cluster.disks(), cluster.nics(), cluster.dpus());
    let (all, own) = (ListParams::default(), format!("reading Dpu {dpu_name}"));
    let (disks, nics, dpu) = tokio::join!(
        bounded("listing DiskAttachments", disks.list(&all)),
        bounded("listing NicAttachments", nics.list(&all)),
        bounded(&own, dpus.get(dpu_name)),
    );
    let disks = disks?.items.iter().map(Attachment::from_disk).collect::<Vec<_>>();
    let attachments = disks.into_iter().chain(nics?.items.iter().map(Attachment::from_nic)).collect();
    Ok((attachments, Word::of(&dpu?)))
}

fn class(class: ErrorClass) -> FailureClass {
    match class {
        ErrorClass::Unreachable => FailureClass::Unreachable,
        ErrorClass::Unauthorized => FailureClass::Unauthorized,
        ErrorClass::Busy => FailureClass::Busy,
        ErrorClass::NotFound => FailureClass::NotFound,
        ErrorClass::Conflict => FailureClass::Conflict,
        ErrorClass::Unsupported => FailureClass::Unsupported,
        ErrorClass::Invalid => FailureClass::Invalid,
    }
}
