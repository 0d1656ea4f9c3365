//! The watched copies of everything that a plan rests on. What each kind is found by, and who is looked at again when an object of
//! it changes, is its [`Kind`]; a new kind is that and a line of `watched!`.

use crate::cache::{Cache, Object, key};
use crate::echo;
use crate::index::IndexKey;
use crate::kinds::{NetworkAttachmentDefinition, NetworkedPod};
use crate::liveness::Liveness;
use crate::network::Pools;
use crate::network::chassis::Told;
use crate::news::News;
use crate::objects::{InstallSeed, Objects};
use crate::placement::Placement;
use crate::snapshots::{VolumeGroupSnapshot, VolumeGroupSnapshotClass, VolumeSnapshot};
use crate::work::{Queues, Work};
use api::tinkerbell::{Hardware, Job, Task, Template, Workflow, WorkflowRuleSet};
use api::{
    AddressHold, BareMetalMachine, ClusterMachineImage, DiskAttachment, Dpu, FloatingIP, HardwarePolicy,
    HardwareReport, MachineImage, MachineMigration, MachineRestore, MachineSnapshot, NatGateway, NicAttachment,
    ProviderNetwork, SecurityGroup, Subnet, VNic, VolumeHold, Vpc,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment, VolumeAttributesClass};
use kube::Api;
use kube::runtime::watcher;
use runtime::patience::Patience;
use runtime::queue::{Key, Queue};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Where there is one namespace of a kind's objects.
pub struct Namespaces {
    /// Of Hardware, and of what is made of it.
    pub inventory: String,
    /// Of the Secrets by which installed systems are told about themselves.
    pub seeds: String,
}

/// A kind that is watched.
pub trait Kind: Object {
    /// Its API may not be installed: nothing waits until its cache is filled.
    const OPTIONAL: bool = false;

    /// Where its objects are, and which of them are watched: all, in whatever namespace.
    fn watched(objects: &Objects, _: &Namespaces) -> (Api<Self>, watcher::Config) {
        (Api::all(objects.client.clone()), watcher::Config::default())
    }

    /// What an object is found by, beside its name.
    fn index(&self) -> Vec<IndexKey> {
        Vec::new()
    }

    /// The object was added, changed or removed: who rests on it is looked at again.
    fn wake(&self, world: &World);
}

macro_rules! watched {
    ($($(#[$doc:meta])* $field:ident: $kind:ty,)*) => {
        pub struct World {
            nonce: u64,
            pub liveness: Arc<Liveness>,
            queues: Queues,
            pub pools: Pools,
            pub placement: Placement,
            pub(crate) news: News,
            pub told_of_chassis: Told,
            $($(#[$doc])* pub $field: Arc<Cache<$kind>>,)*
        }

        impl World {
            /// `nonce`: differs between any two processes.
            pub fn new(nonce: u64) -> Arc<Self> {
                let (liveness, queues, pools) = (Liveness::new(), Queues::default(), Pools::default());
                let (placement, news, told_of_chassis) = (Placement::default(), News::default(), Told::default());
                Arc::new(Self { nonce, liveness, queues, pools, placement, news, told_of_chassis, $($field: Cache::new(<$kind>::index),)* })
            }

            /// Starts every watch. They end when the set is dropped.
            pub fn watch(self: &Arc<Self>, objects: &Objects, of: &Namespaces) -> JoinSet<()> {
                let mut set = JoinSet::new();
                $(self.watch_kind(&mut set, &self.$field, <$kind>::watched(objects, of));)*
                let leases: Api<Lease> = Api::all(objects.client.clone());
                set.spawn(self.liveness.clone().watch(leases, Patience::new(self.nonce, "Lease")));
                set
            }

            /// How many objects the caches have told the end of.
            pub fn ends(&self) -> u64 {
                0 $(+ self.$field.ends())*
            }

            /// The caches hold everything.
            pub fn is_ready(&self) -> bool {
                $((<$kind>::OPTIONAL || self.$field.is_ready()) &&)* self.liveness.is_ready()
            }

            pub async fn wait_ready(&self) {
                $(if !<$kind>::OPTIONAL {
                    self.$field.wait_ready().await;
                })*
                self.liveness.wait_ready().await;
            }
        }
    };
}

watched! {
    machines: BareMetalMachine,
    hardware: Hardware,
    reports: HardwareReport,
    templates: Template,
    workflows: Workflow,
    install_seeds: InstallSeed,
    rule_sets: WorkflowRuleSet,
    jobs: Job,
    tasks: Task,
    policies: HardwarePolicy,
    dpus: Dpu,
    claims: PersistentVolumeClaim,
    volume_attachments: VolumeAttachment,
    storage_classes: StorageClass,
    attributes_classes: VolumeAttributesClass,
    holds: VolumeHold,
    disks: DiskAttachment,
    nics: NicAttachment,
    vpcs: Vpc,
    subnets: Subnet,
    groups: SecurityGroup,
    vnics: VNic,
    address_holds: AddressHold,
    provider_networks: ProviderNetwork,
    nat_gateways: NatGateway,
    floating_ips: FloatingIP,
    images: MachineImage,
    cluster_images: ClusterMachineImage,
    snapshots: VolumeSnapshot,
    group_snapshots: VolumeGroupSnapshot,
    group_classes: VolumeGroupSnapshotClass,
    namespaces: Namespace,
    machine_snapshots: MachineSnapshot,
    restores: MachineRestore,
    migrations: MachineMigration,
    holder_pods: Pod,
    pods: NetworkedPod,
    definitions: NetworkAttachmentDefinition,
}

impl World {
    fn watch_kind<K: Kind>(
        self: &Arc<Self>,
        set: &mut JoinSet<()>,
        cache: &Arc<Cache<K>>,
        (api, config): (Api<K>, watcher::Config),
    ) {
        // Weak would end the watches with the world; the set that owns the tasks does.
        let (world, cache, patience) = (self.clone(), cache.clone(), Patience::new(self.nonce, &K::kind(&())));
        set.spawn(async move { cache.watch(api, config, patience, move |object| object.wake(&world)).await });
    }

    pub fn queue(&self, work: Work) -> &Arc<Queue> {
        self.queues.of(work)
    }

    /// Those that were told that no VNic of theirs can be on a chassis, or that a host has its address.
    pub fn look_at_those_told_of_chassis(&self) {
        self.told_of_chassis.take().into_iter().for_each(|(work, key)| self.look(work, key));
    }

    /// That object is looked at, unless it is told of what it wrote itself.
    pub fn look(&self, work: Work, key: Key) {
        if !echo::is_told_its_own(work, &key) {
            self.queues.of(work).add(key);
        }
    }

    /// Those of one kind that are found by this.
    pub(crate) fn look_at_each<K: Kind>(&self, work: Work, cache: &Cache<K>, index: &IndexKey) {
        cache.by(index).iter().for_each(|object| self.look(work, key(object.meta())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use std::collections::BTreeMap;

    /// All that a new kind needs beside its line of `watched!`.
    impl Kind for ConfigMap {
        fn index(&self) -> Vec<IndexKey> {
            self.data.iter().flat_map(|data| data.get("machine")).map(|uid| IndexKey::owner(uid)).collect()
        }

        fn wake(&self, world: &World) {
            self.data.iter().flat_map(|data| data.get("machine")).for_each(|uid| world.machine_by_uid(uid));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_kind_is_one_registration() {
        let world = World::new(0);
        let mut machine = BareMetalMachine::new("bm-01", Default::default());
        (machine.metadata.namespace, machine.metadata.uid) = (Some("team-a".into()), Some("m".into()));
        world.machines.put(machine);
        let mut object =
            ConfigMap { data: Some(BTreeMap::from([("machine".into(), "m".into())])), ..ConfigMap::default() };
        object.metadata.name = Some("notes".into());
        let cache = Cache::new(ConfigMap::index);
        cache.put(object.clone());
        assert_eq!(cache.by(&IndexKey::owner("m")).len(), 1);
        object.wake(&world);
        assert_eq!(world.queue(Work::Machine).next().await, ("team-a".to_owned(), "bm-01".to_owned()));
    }
}
