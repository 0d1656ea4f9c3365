//! Plans are carried out by the sequences of `executor`. Each request is answered at once; after so many the controller dies.

use super::{INVENTORY, SEEDS};
use api::labels;
use executor::{Error, Part, Shell, Storage, Verbs, act, hosts, writes};
use futures::FutureExt;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::Preconditions;
use model::{Kind, Objects, Rests};
use planner::exposure::ExposureId;
use planner::machine::observed::{label, name};
use planner::machine::plan::Disruptive;
use planner::machine::{Action, Leftovers, Observed, Plan, leftovers};
use ports::PortError;
use ports::volume::Volume;
use serde_json::Value;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// What the requests are sent to.
pub trait Outside {
    fn objects(&mut self) -> &mut Objects;
    fn now(&self) -> Time;
    /// The storage refuses the attachment with this UID.
    fn refuse(&mut self, attachment_uid: &str);
    fn refuses(&self, attachment_uid: &str) -> bool;
    /// The agent in this namespace renews its Lease.
    fn lives(&self, dpu_namespace: &str) -> bool;
    /// A host does as it is told.
    fn disrupt(&mut self, hardware: &str, disruptive: &Disruptive);
    /// What must hold after each request.
    fn check(&self, _deleted: Option<&PersistentVolumeClaim>) {}
}

/// One leader, for as long as it carries out one plan.
pub struct Requests<'a, W> {
    world: RefCell<&'a mut W>,
    /// What it has heard of: as it was when the plan was made, and what its own writes were answered with.
    known: RefCell<Objects>,
    /// So many requests before it dies.
    left: Cell<usize>,
}

/// The whole plan, or the first `requests` requests of it: a crash. `known`: what was known when it was made.
pub fn carry_out<W: Outside>(world: &mut W, known: Objects, o: &Observed, plan: &Plan, requests: usize) {
    let leader = Requests::new(world, known, requests);
    let done = leader.round(o, plan).now_or_never().expect("every request is answered at once");
    leader.ends(done);
}

/// The same for a machine that no longer exists.
pub fn carry_out_for_gone<W: Outside>(
    world: &mut W,
    known: Objects,
    left: &Leftovers,
    plan: &leftovers::Plan,
    requests: usize,
) {
    let leader = Requests::new(world, known, requests);
    let done = leader.round_for_gone(left, plan).now_or_never().expect("every request is answered at once");
    leader.ends(done);
}

impl<'a, W: Outside> Requests<'a, W> {
    fn new(world: &'a mut W, known: Objects, requests: usize) -> Self {
        Self { world: RefCell::new(world), known: RefCell::new(known), left: Cell::new(requests) }
    }

    fn ends(&self, done: Result<(), Error>) {
        if let Err(error) = done {
            let stale_or_dead = error.is_stale() || self.left.get() == 0 || matches!(error, Error::Bmc(_));
            assert!(stale_or_dead, "{error}");
        }
    }

    async fn round(&self, o: &Observed, plan: &Plan) -> Result<(), Error> {
        act::all(self, act::Owner::Machine(&o.machine), &plan.actions).await?;
        let before = executor::known::<api::BareMetalMachine>(self, o.namespace(), o.name());
        let Some(before) = before.filter(|before| before.metadata.uid == o.machine.metadata.uid) else { return Ok(()) };
        if before.status.as_ref() != Some(&plan.status) {
            let mut after = api::BareMetalMachine::clone(&before);
            after.status = Some(plan.status.clone());
            writes::change_status(self, &*before, &after).await?;
        }
        let Some(disruptive) = plan.disruptive.as_ref().filter(|_| plan.actions.is_empty()) else { return Ok(()) };
        let hardware = plan.status.hardware_name.clone().unwrap_or_default();
        hosts::confirm_claim(self, o.uid(), &hardware).await?;
        self.world.borrow_mut().disrupt(&hardware, disruptive);
        Ok(())
    }

    /// As the controller does where there is no status to write.
    async fn round_for_gone(&self, left: &Leftovers, plan: &leftovers::Plan) -> Result<(), Error> {
        act::all(self, act::Owner::Gone(&left.of), &plan.actions).await?;
        let Some(disruptive) = plan.disruptive.as_ref().filter(|_| plan.actions.is_empty()) else { return Ok(()) };
        let Some(hardware) = leftovers::server(left) else { return Ok(()) };
        hosts::confirm_claim(self, &left.of.uid, name(&hardware.metadata)).await?;
        if matches!(disruptive, Disruptive::Power(_)) {
            hosts::record_power(self, hardware, &plan.power).await?;
        }
        self.world.borrow_mut().disrupt(name(&hardware.metadata), disruptive);
        Ok(())
    }

    fn send<T>(
        &self,
        what: &str,
        request: impl FnOnce(&mut Objects, Time) -> Result<T, model::Error>,
    ) -> Result<T, Error> {
        let what = what.to_owned();
        let Some(left) = self.left.get().checked_sub(1) else {
            return Err(Error::Unavailable { what, message: "its sender has died".to_owned() });
        };
        self.left.set(left);
        let mut world = self.world.borrow_mut();
        let now = world.now();
        let done = request(world.objects(), now);
        world.check(None);
        done.map_err(|error| {
            let message = format!("{error:?}");
            match error {
                model::Error::NotFound => Error::NotFound { what },
                model::Error::AlreadyExists => Error::AlreadyExists { what, message },
                model::Error::Conflict => Error::Conflict { what, message },
                model::Error::Refused | model::Error::NoAnswer | model::Error::Unreachable => {
                    Error::Refused { what, message }
                }
            }
        })
    }
}

impl<K: Kind, W: Outside> Verbs<K> for Requests<'_, W> {
    async fn get(&self, namespace: &str, name: &str) -> Result<K, Error> {
        self.send(&format!("get {name}"), |objects, _| objects.get::<K>(namespace, name)).map(Arc::unwrap_or_clone)
    }

    async fn list(&self, of: Option<(&str, &str)>) -> Result<Vec<K>, Error> {
        self.send(&format!("list {}", K::plural(&())), |objects, _| {
            let has = |object: &&Arc<K>| of.is_none_or(|(of, value)| label(object.meta(), of) == Some(value));
            Ok(objects.all::<K>().filter(has).map(|object| K::clone(object)).collect())
        })
    }

    async fn create(&self, object: &K) -> Result<K, Error> {
        let what = format!("create {}", name(object.meta()));
        self.send(&what, |objects, now| {
            let mut made = object.clone();
            made.meta_mut().creation_timestamp = Some(now);
            objects.create(made)
        })
        .map(Arc::unwrap_or_clone)
    }

    async fn patch(&self, namespace: &str, name: &str, part: Part, change: Value) -> Result<K, Error> {
        let patch = |objects: &mut Objects, _| objects.patch::<K>((namespace, name), part, change);
        self.send(&format!("patch {name}"), patch).map(Arc::unwrap_or_clone)
    }

    async fn delete(
        &self,
        namespace: &str,
        name: &str,
        rests_on: Preconditions,
        grace_seconds: Option<u32>,
    ) -> Result<Option<K>, Error> {
        let rests = Rests { uid: rests_on.uid, version: rests_on.resource_version };
        // kubelet has to end a pod first.
        let lingers = std::any::TypeId::of::<K>() == std::any::TypeId::of::<Pod>() && grace_seconds != Some(0);
        let last = self.send(&format!("delete {name}"), |objects, now| {
            let last = objects.delete::<K>((namespace, name), &rests, now, lingers)?;
            let there = objects.get::<K>(namespace, name).ok().filter(|there| there.meta().uid == last.meta().uid);
            Ok((last, there))
        })?;
        let (last, there) = last;
        if let (Some(claim), None) = ((&*last as &dyn Any).downcast_ref::<PersistentVolumeClaim>(), &there) {
            self.world.borrow().check(Some(claim));
        }
        Ok(there.map(Arc::unwrap_or_clone))
    }

    fn known(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.known.borrow().get::<K>(namespace, name).ok()
    }

    fn put(&self, object: K) {
        K::table_mut(&mut self.known.borrow_mut()).insert(object);
    }

    fn forget(&self, meta: &ObjectMeta) {
        let key = (meta.namespace.clone().unwrap_or_default(), name(meta).to_owned());
        K::table_mut(&mut self.known.borrow_mut()).remove(&key);
    }
}

impl<W: Outside> Storage for Requests<'_, W> {
    fn is_told(&self) -> bool {
        true
    }

    /// As the agents of [`super::outside`] report it.
    fn identity(&self, volume: &Volume, id: &ExposureId) -> Option<String> {
        (volume.driver == super::world::DRIVER).then(|| format!("{}.{}", id.uid, id.epoch))
    }

    async fn admit(&self, _: &Volume, _: &str) -> Result<(), PortError> {
        Ok(())
    }

    async fn dismiss(&self, _: &Volume, _: &str) -> Result<(), PortError> {
        Ok(())
    }

    async fn fence(&self, _: &Volume, identity: &str) -> Result<(), PortError> {
        self.world.borrow_mut().refuse(attachment_of(identity));
        Ok(())
    }

    async fn verify_fenced(&self, _: &Volume, identity: &str) -> Result<bool, PortError> {
        Ok(self.world.borrow().refuses(attachment_of(identity)))
    }

    fn problem(&self, _: &str, _: Option<String>) {}
}

fn attachment_of(identity: &str) -> &str {
    identity.rsplit_once('.').map_or(identity, |(uid, _)| uid)
}

impl<W: Outside> Shell for Requests<'_, W> {
    fn inventory(&self) -> &str {
        INVENTORY
    }

    fn seeds(&self) -> &str {
        SEEDS
    }

    async fn confirm_silent(&self, dpu_namespace: &str) -> Result<(), Error> {
        match self.world.borrow().lives(dpu_namespace) {
            false => Ok(()),
            true => {
                let what = format!("get Lease '{dpu_namespace}/agent'");
                Err(Error::NotConfirmed { what, message: "the agent has renewed it".to_owned() })
            }
        }
    }

    fn acted(&self, _: &Action, _: Option<&Error>) {}
}

/// One sequence of requests by somebody who knows all that is there. What is stale is left to the next round.
pub fn send<W: Outside>(world: &mut W, sequence: impl AsyncFnOnce(&Requests<'_, W>) -> Result<(), Error>) {
    let known = RefCell::new(world.objects().clone());
    let leader = Requests { world: RefCell::new(world), known, left: Cell::new(usize::MAX) };
    let done = sequence(&leader).now_or_never().expect("every request is answered at once");
    done.or_else(|error| if error.is_stale() { Ok(()) } else { Err(error) }).expect("the model refuses nothing");
}

/// A mark by which an owner uses a claim or VNic is there.
pub fn is_used(meta: &ObjectMeta) -> bool {
    meta.annotations.iter().flatten().any(|(key, _)| key.starts_with(labels::IN_USE_BY))
}
