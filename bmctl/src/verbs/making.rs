//! Makes the object of an operation, follows it to its end, and prints it.

use super::args::Making;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::output::{changed, dry, name_of};
use crate::watch;
use api::conditions;
use api::verbs::{HasPhase, OperationPhase};
use api::{MachineMigration, MachineRestore, MachineSnapshot};
use futures::TryStreamExt;
use kube::api::PostParams;
use kube::core::NamespaceResourceScope;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::pin::pin;

/// A kind whose objects are operations.
pub trait Operation:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + HasPhase
    + Send
    + Sync
    + 'static
{
}

impl Operation for MachineSnapshot {}
impl Operation for MachineRestore {}
impl Operation for MachineMigration {}

pub fn api<K: Operation>(cluster: &Cluster) -> Api<K> {
    Api::namespaced(cluster.client.clone(), &cluster.namespace)
}

/// As a user reads it: `MachineSnapshot 's1' in namespace 'team-a'`.
pub fn object<K: Operation>(cluster: &Cluster, name: &str) -> String {
    format!("{} '{name}' in namespace '{}'", K::kind(&()), cluster.namespace)
}

/// Makes it, waits if it was asked to, and says so.
pub async fn make<K: Operation>(cluster: &Cluster, making: &Making, wanted: &K, done: &str) -> Result<String, Failure> {
    let params = PostParams { dry_run: making.dry_run, field_manager: Some("bmctl".to_owned()) };
    let title = match &wanted.meta().name {
        Some(name) => object::<K>(cluster, name),
        None => format!("a new {} in namespace '{}'", K::kind(&()), cluster.namespace),
    };
    let made = api::<K>(cluster).create(&params, wanted).await;
    let made = made.map_err(|e| Failure::from_kube(e, &title, cluster.program))?;
    if making.wait && !making.dry_run {
        follow::<K>(cluster, making, &made.name_any()).await?;
    }
    let told = || format!("{} {done}{}\n", name_of(&made), dry(making.dry_run));
    Ok(changed(making.output, &made, told)?)
}

/// Until it is over. Progress goes to standard error, once per new reason.
async fn follow<K: Operation>(cluster: &Cluster, making: &Making, name: &str) -> Result<(), Failure> {
    let mut said = String::new();
    let follow = async {
        let mut events = pin!(watcher(api::<K>(cluster), watch::of(name)).default_backoff());
        loop {
            let now = match events.try_next().await {
                Ok(Some(watcher::Event::Apply(object) | watcher::Event::InitApply(object))) => {
                    let why = why(&object, cluster.program);
                    match object.phase() {
                        OperationPhase::Succeeded => return Ok(()),
                        OperationPhase::Failed => return Err(why),
                        OperationPhase::Pending | OperationPhase::Running => why,
                    }
                }
                Ok(Some(watcher::Event::Delete(_))) => return Err("it was deleted meanwhile".to_owned()),
                Ok(_) => continue,
                Err(error) => match watch::trouble(&error) {
                    Some(trouble) => trouble,
                    None => continue,
                },
            };
            if now != said {
                eprintln!("{name}: {now}");
                said = now;
            }
        }
    };
    let next = format!("kubectl describe {} {name}", K::kind(&()).to_lowercase());
    let object = object::<K>(cluster, name);
    match tokio::time::timeout(making.timeout, follow).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(cause)) => Err(Failure::Told { object, cause, next }),
        Err(_) => Err(Failure::TimedOut { object, seconds: making.timeout.as_secs(), cause: said, next }),
    }
}

/// What its condition says, and what can be done about it.
fn why<K: Operation>(object: &K, program: &str) -> String {
    let all = object.conditions();
    let Some(condition) =
        [conditions::READY, conditions::COMPLETE].iter().find_map(|type_| conditions::get(all, type_))
    else {
        return "the controller has not looked at it yet".to_owned();
    };
    format!("{}: {}", condition.reason, condition.message.replace("bmctl ", &format!("{program} ")))
}
