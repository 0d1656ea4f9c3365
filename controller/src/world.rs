//! The watched copies of everything that a plan rests on, and who is looked at again when something changes.

use crate::cache::{Cache, Object, key};
use crate::liveness::Liveness;
use crate::objects::Objects;
use crate::patience::patience;
use crate::queue::Queue;
use crate::snapshots::VolumeSnapshot;
use crate::verbs::Verbs;
use api::attachment::OwnerReference;
use api::tinkerbell::Hardware;
use api::{
    BareMetalMachine, ClusterMachineImage, DiskAttachment, Dpu, HardwarePolicy, MachineImage, NicAttachment, Subnet,
    VNic, VolumeHold, labels,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment, VolumeAttributesClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::runtime::watcher;
use planner::machine::claim_name;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Kinds of work, each with a queue of its own.
pub struct Queues {
    pub machines: Arc<Queue>,
    /// By the UID of a machine that is not there.
    pub leftovers: Arc<Queue>,
    /// By the UID of an image that is not there.
    pub image_leftovers: Arc<Queue>,
    pub dpus: Arc<Queue>,
    pub images: Arc<Queue>,
    /// By name.
    pub holds: Arc<Queue>,
    pub holder_pods: Arc<Queue>,
}

impl Queues {
    /// With the name of the controller that works on it.
    pub(crate) fn named(&self) -> [(&'static str, &Arc<Queue>); 7] {
        [
            ("machine", &self.machines),
            ("leftovers", &self.leftovers),
            ("image-leftovers", &self.image_leftovers),
            ("dpu", &self.dpus),
            ("image", &self.images),
            ("hold", &self.holds),
            ("holder-pod", &self.holder_pods),
        ]
    }
}

pub struct World {
    nonce: u64,
    pub machines: Arc<Cache<BareMetalMachine>>,
    pub hardware: Arc<Cache<Hardware>>,
    pub policies: Arc<Cache<HardwarePolicy>>,
    pub dpus: Arc<Cache<Dpu>>,
    pub claims: Arc<Cache<PersistentVolumeClaim>>,
    pub volume_attachments: Arc<Cache<VolumeAttachment>>,
    pub storage_classes: Arc<Cache<StorageClass>>,
    pub attributes_classes: Arc<Cache<VolumeAttributesClass>>,
    pub holds: Arc<Cache<VolumeHold>>,
    pub disks: Arc<Cache<DiskAttachment>>,
    pub nics: Arc<Cache<NicAttachment>>,
    pub subnets: Arc<Cache<Subnet>>,
    pub vnics: Arc<Cache<VNic>>,
    pub images: Arc<Cache<MachineImage>>,
    pub cluster_images: Arc<Cache<ClusterMachineImage>>,
    pub snapshots: Arc<Cache<VolumeSnapshot>>,
    pub namespaces: Arc<Cache<Namespace>>,
    pub holder_pods: Arc<Cache<Pod>>,
    pub liveness: Arc<Liveness>,
    pub verbs: Verbs,
    pub queues: Queues,
}

fn word(meta: &ObjectMeta, label: &str) -> Option<String> {
    meta.labels.as_ref()?.get(label).cloned()
}

fn owner(owner: &OwnerReference) -> Vec<String> {
    vec![owner.uid.clone()]
}

/// The UIDs of the machine and the image for which something was made.
fn made_for(meta: &ObjectMeta) -> impl Iterator<Item = String> {
    [labels::MACHINE_UID, labels::IMAGE_UID].into_iter().filter_map(|label| word(meta, label))
}

/// Words of the index: `pv:<name>`, and for whom it was made.
fn attachment_words(va: &VolumeAttachment) -> Vec<String> {
    let volume = va.spec.source.persistent_volume_name.iter().map(|name| format!("pv:{name}"));
    volume.chain(made_for(&va.metadata)).collect()
}

/// The UIDs by which a claim or VNic is marked as used.
fn marks(meta: &ObjectMeta) -> impl Iterator<Item = &str> {
    meta.annotations.iter().flatten().filter_map(|(key, _)| key.strip_prefix(labels::IN_USE_BY))
}

/// The UIDs of those that a claim or VNic is marked as used by, and of the one that it was made for.
pub fn users(meta: &ObjectMeta) -> Vec<String> {
    let mut all: Vec<String> = marks(meta).map(str::to_owned).collect();
    for own in made_for(meta) {
        if !all.contains(&own) {
            all.push(own);
        }
    }
    all
}

fn namespace_of(meta: &ObjectMeta) -> String {
    meta.namespace.clone().unwrap_or_default()
}

impl World {
    /// `nonce`: differs between any two processes.
    pub fn new(nonce: u64) -> Arc<Self> {
        Arc::new(Self {
            nonce,
            machines: Cache::new(|m| {
                let mut words = vec![namespace_of(&m.metadata)];
                words.extend(m.metadata.uid.clone());
                words.extend(
                    m.spec.disks.iter().filter_map(|d| d.source.image.as_ref()).map(|i| format!("image:{}", i.name)),
                );
                words
            }),
            hardware: Cache::new(|h| {
                h.metadata
                    .annotations
                    .iter()
                    .flatten()
                    .filter(|(k, _)| *k == labels::CLAIMED_BY)
                    .map(|(_, v)| v.clone())
                    .collect()
            }),
            policies: Cache::new(|_| Vec::new()),
            dpus: Cache::new(|d| d.spec.hardware_ref.iter().map(|r| r.name.clone()).collect()),
            claims: Cache::new(|c| users(&c.metadata)),
            volume_attachments: Cache::new(attachment_words),
            storage_classes: Cache::new(|_| Vec::new()),
            attributes_classes: Cache::new(|_| Vec::new()),
            holds: Cache::new(|h| made_for(&h.metadata).collect()),
            disks: Cache::new(|a| owner(&a.spec.owner)),
            nics: Cache::new(|a| owner(&a.spec.owner)),
            subnets: Cache::new(|s| vec![namespace_of(&s.metadata)]),
            vnics: Cache::new(|v| vec![namespace_of(&v.metadata)]),
            images: Cache::new(|image| image.metadata.uid.iter().cloned().collect()),
            cluster_images: Cache::new(|image| image.metadata.uid.iter().cloned().collect()),
            snapshots: Cache::new(|s| {
                [labels::IMAGE_UID, labels::OPERATION_UID].iter().filter_map(|label| word(&s.metadata, label)).collect()
            }),
            namespaces: Cache::new(|_| Vec::new()),
            holder_pods: Cache::new(|pod| word(&pod.metadata, labels::MACHINE_UID).into_iter().collect()),
            liveness: Liveness::new(),
            verbs: Verbs::new(),
            queues: Queues {
                machines: Arc::default(),
                leftovers: Arc::default(),
                image_leftovers: Arc::default(),
                dpus: Arc::default(),
                images: Arc::default(),
                holds: Arc::default(),
                holder_pods: Arc::default(),
            },
        })
    }

    /// The machine with this UID is looked at again.
    pub fn machine_by_uid(&self, uid: &str) {
        for machine in self.machines.by(uid) {
            self.queues.machines.add(key(&machine.metadata));
            self.verbs.machine_changed(&machine.metadata);
        }
    }

    /// Something of the machine with this UID has changed, or it itself: it is looked at again, and if it is no more, what it
    /// has left.
    fn of_machine(&self, uid: &str) {
        match self.machines.by(uid).is_empty() {
            true => self.queues.leftovers.add((String::new(), uid.to_owned())),
            false => self.machine_by_uid(uid),
        }
    }

    /// The same of an image.
    fn of_image(&self, uid: &str) {
        match self.has_image(uid) {
            true => self.image_by_uid(uid),
            false => self.queues.image_leftovers.add((String::new(), uid.to_owned())),
        }
    }

    pub(crate) fn has_image(&self, uid: &str) -> bool {
        !self.images.by(uid).is_empty() || !self.cluster_images.by(uid).is_empty()
    }

    /// Of a machine or an image, as its labels say.
    fn of_maker(&self, meta: &ObjectMeta) {
        word(meta, labels::MACHINE_UID).iter().for_each(|uid| self.of_machine(uid));
        word(meta, labels::IMAGE_UID).iter().for_each(|uid| self.of_image(uid));
    }

    /// The machines that a claim or VNic is marked by. An image marks the claim that it made, and looks at that itself.
    fn marked(&self, meta: &ObjectMeta) {
        let image = word(meta, labels::IMAGE_UID);
        marks(meta).filter(|uid| image.as_deref() != Some(uid)).for_each(|uid| self.of_machine(uid));
    }

    fn machines_of_namespace(&self, namespace: &str) {
        for machine in self.machines.by(namespace) {
            self.queues.machines.add(key(&machine.metadata));
        }
    }

    /// Those that have no server yet, for the inventory has changed.
    fn machines_without_hardware(&self) {
        self.verbs.inventory_changed();
        for machine in self.machines.all() {
            let has = machine.metadata.uid.as_deref().is_some_and(|uid| !self.hardware.by(uid).is_empty());
            if !has {
                self.queues.machines.add(key(&machine.metadata));
            }
        }
    }

    /// What becomes of an orphan may hang on who holds its volume or its VNic now.
    fn dpus_with_orphans(&self) {
        for dpu in self.dpus.all() {
            if dpu.status.as_ref().is_some_and(|status| !status.orphans.is_empty()) {
                self.queues.dpus.add(key(&dpu.metadata));
            }
        }
    }

    /// Machines on the DPU's host, and all that still look for one.
    fn dpu_changed(&self, dpu: &Dpu) {
        self.queues.dpus.add(key(&dpu.metadata));
        self.machines_of_dpu(dpu);
        self.machines_without_hardware();
    }

    /// The machine on the DPU's host.
    pub fn machines_of_dpu(&self, dpu: &Dpu) {
        let Some(hardware) = dpu.spec.hardware_ref.as_ref() else { return };
        for hardware in self.hardware.all().iter().filter(|h| h.metadata.name.as_deref() == Some(&hardware.name)) {
            let claim = hardware.metadata.annotations.as_ref().and_then(|a| a.get(labels::CLAIMED_BY));
            if let Some(uid) = claim {
                self.machine_by_uid(uid);
            }
        }
    }

    /// A Dpu that is deleted waits for the last attachment.
    fn dpu_that_leaves(&self, name: &str) {
        if self.dpus.get("", name).is_none_or(|dpu| dpu.metadata.deletion_timestamp.is_some()) {
            self.queues.dpus.add((String::new(), name.to_owned()));
        }
    }

    fn owner_changed(&self, owner: &OwnerReference) {
        match owner.kind.as_str() {
            "BareMetalMachine" => self.of_machine(&owner.uid),
            _ => self.of_image(&owner.uid),
        }
    }

    fn claim_changed(&self, claim: &PersistentVolumeClaim) {
        let meta = &claim.metadata;
        word(meta, labels::MACHINE_UID).iter().for_each(|uid| self.machine_by_uid(uid));
        word(meta, labels::IMAGE_UID).iter().for_each(|uid| self.of_image(uid));
        self.marked(meta);
        self.verbs.part_changed(meta);
        // A claim of the user's own is named by the spec only.
        let name = meta.name.as_deref().unwrap_or_default();
        for machine in self.machines.by(&namespace_of(meta)) {
            if machine.spec.disks.iter().any(|disk| claim_name(&machine, disk) == name) {
                self.queues.machines.add(key(&machine.metadata));
            }
        }
    }

    fn image_by_uid(&self, uid: &str) {
        self.images.by(uid).iter().for_each(|image| self.queues.images.add(key(&image.metadata)));
        self.cluster_images.by(uid).iter().for_each(|image| self.queues.images.add(key(&image.metadata)));
    }

    fn image_changed(&self, meta: &ObjectMeta) {
        self.of_image(meta.uid.as_deref().unwrap_or_default());
        for machine in self.machines.by(&format!("image:{}", meta.name.clone().unwrap_or_default())) {
            self.queues.machines.add(key(&machine.metadata));
        }
    }

    fn snapshot_changed(&self, snapshot: &VolumeSnapshot) {
        if let Some(image) = word(&snapshot.metadata, labels::IMAGE_UID) {
            self.image_by_uid(&image);
        }
        self.verbs.part_changed(&snapshot.metadata);
        self.machines_of_namespace(&namespace_of(&snapshot.metadata));
    }

    /// Starts every watch. They end when the set is dropped.
    pub fn watch(self: &Arc<Self>, objects: &Objects, inventory: &str) -> JoinSet<()> {
        let mut set = JoinSet::new();
        let (o, all) = (objects, watcher::Config::default);
        spawn(&mut set, self, &self.machines, Api::all(o.client.clone()), all(), |w, m: &BareMetalMachine| {
            w.queues.machines.add(key(&m.metadata));
            w.verbs.machine_changed(&m.metadata);
            w.of_machine(m.metadata.uid.as_deref().unwrap_or_default());
        });
        spawn(&mut set, self, &self.hardware, o.namespaced(inventory), all(), |w, h: &Hardware| {
            match h.metadata.annotations.as_ref().and_then(|a| a.get(labels::CLAIMED_BY)) {
                Some(uid) => w.of_machine(uid),
                None => w.machines_without_hardware(),
            }
        });
        spawn(&mut set, self, &self.policies, o.namespaced(inventory), all(), |w, _| w.machines_without_hardware());
        spawn(&mut set, self, &self.dpus, o.cluster(), all(), |w, dpu| w.dpu_changed(dpu));
        spawn(&mut set, self, &self.claims, Api::all(o.client.clone()), all(), |w, claim| w.claim_changed(claim));
        spawn(&mut set, self, &self.volume_attachments, o.cluster(), all(), |w, va: &VolumeAttachment| {
            w.of_maker(&va.metadata);
            let somebody_elses = made_for(&va.metadata).next().is_none();
            if let Some(volume) = va.spec.source.persistent_volume_name.as_ref().filter(|_| somebody_elses) {
                // Whoever of ours waits for that volume.
                for ours in w.volume_attachments.by(&format!("pv:{volume}")) {
                    word(&ours.metadata, labels::MACHINE_UID).iter().for_each(|uid| w.machine_by_uid(uid));
                }
                w.waiting_for_volume(volume);
            }
        });
        // Whoever waits for a claim looks again every few seconds.
        spawn(&mut set, self, &self.storage_classes, o.cluster(), all(), |_, _| {});
        spawn(&mut set, self, &self.attributes_classes, o.cluster(), all(), |w, class: &VolumeAttributesClass| {
            w.attributes_class_changed(class.metadata.name.as_deref().unwrap_or_default());
        });
        spawn(&mut set, self, &self.holds, o.cluster(), all(), |w, hold: &VolumeHold| {
            w.queues.holds.add(key(&hold.metadata));
            w.dpus_with_orphans();
            w.waiting_for_volume(hold.spec.persistent_volume_name.as_deref().unwrap_or_default());
            w.of_maker(&hold.metadata);
        });
        spawn(&mut set, self, &self.disks, Api::all(o.client.clone()), all(), |w, a: &DiskAttachment| {
            w.owner_changed(&a.spec.owner);
            w.dpu_that_leaves(&a.spec.dpu_name);
        });
        spawn(&mut set, self, &self.nics, Api::all(o.client.clone()), all(), |w, a: &NicAttachment| {
            w.owner_changed(&a.spec.owner);
            w.dpu_that_leaves(&a.spec.dpu_name);
        });
        spawn(&mut set, self, &self.subnets, Api::all(o.client.clone()), all(), |w, s: &Subnet| {
            w.machines_of_namespace(&namespace_of(&s.metadata));
        });
        spawn(&mut set, self, &self.vnics, Api::all(o.client.clone()), all(), |w, v: &VNic| {
            w.machines_of_namespace(&namespace_of(&v.metadata));
            w.dpus_with_orphans();
            word(&v.metadata, labels::MACHINE_UID).iter().for_each(|uid| w.of_machine(uid));
            w.marked(&v.metadata);
        });
        spawn(&mut set, self, &self.images, Api::all(o.client.clone()), all(), |w, i: &MachineImage| {
            w.image_changed(&i.metadata);
        });
        spawn(&mut set, self, &self.cluster_images, o.cluster(), all(), |w, i: &ClusterMachineImage| {
            w.image_changed(&i.metadata);
        });
        spawn(&mut set, self, &self.snapshots, Api::all(o.client.clone()), all(), |w, s| w.snapshot_changed(s));
        spawn(&mut set, self, &self.namespaces, o.cluster(), all(), |w, n: &Namespace| {
            w.machines_of_namespace(n.metadata.name.as_deref().unwrap_or_default());
            if let Some(dpu) = word(&n.metadata, labels::DPU) {
                w.queues.dpus.add((String::new(), dpu));
            }
        });
        self.verbs.watch(&mut set, self, objects);
        let holders = all().labels(&crate::holder_pods::selector());
        spawn(&mut set, self, &self.holder_pods, Api::all(o.client.clone()), holders, |w, pod: &Pod| {
            w.queues.holder_pods.add(key(&pod.metadata));
            word(&pod.metadata, labels::MACHINE_UID).iter().for_each(|uid| w.of_machine(uid));
        });
        let leases: Api<Lease> = Api::all(o.client.clone());
        set.spawn(self.liveness.clone().watch(leases, patience(self.nonce, "Lease")));
        set
    }

    /// Machines whose claim is on this volume.
    fn waiting_for_volume(&self, volume: &str) {
        for claim in self.claims.all() {
            if claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()) == Some(volume) {
                self.claim_changed(&claim);
            }
        }
    }

    /// Machines with a volume of this class.
    fn attributes_class_changed(&self, class: &str) {
        for claim in self.claims.all() {
            let status = claim.status.as_ref();
            if status.and_then(|status| status.current_volume_attributes_class_name.as_deref()) == Some(class) {
                self.claim_changed(&claim);
            }
        }
    }

    /// The caches hold everything. (The snapshot API may not be installed, and VolumeAttributesClasses came with Kubernetes
    /// 1.34: these are not waited for.)
    pub fn is_ready(&self) -> bool {
        self.machines.is_ready()
            && self.hardware.is_ready()
            && self.policies.is_ready()
            && self.dpus.is_ready()
            && self.claims.is_ready()
            && self.volume_attachments.is_ready()
            && self.storage_classes.is_ready()
            && self.holds.is_ready()
            && self.disks.is_ready()
            && self.nics.is_ready()
            && self.subnets.is_ready()
            && self.vnics.is_ready()
            && self.images.is_ready()
            && self.cluster_images.is_ready()
            && self.namespaces.is_ready()
            && self.verbs.is_ready()
            && self.holder_pods.is_ready()
            && self.liveness.is_ready()
    }

    pub async fn wait_ready(&self) {
        self.machines.wait_ready().await;
        self.hardware.wait_ready().await;
        self.policies.wait_ready().await;
        self.dpus.wait_ready().await;
        self.claims.wait_ready().await;
        self.volume_attachments.wait_ready().await;
        self.storage_classes.wait_ready().await;
        self.holds.wait_ready().await;
        self.disks.wait_ready().await;
        self.nics.wait_ready().await;
        self.subnets.wait_ready().await;
        self.vnics.wait_ready().await;
        self.images.wait_ready().await;
        self.cluster_images.wait_ready().await;
        self.namespaces.wait_ready().await;
        self.verbs.wait_ready().await;
        self.holder_pods.wait_ready().await;
        self.liveness.wait_ready().await;
    }
}

pub(crate) fn spawn<K: Object>(
    set: &mut JoinSet<()>,
    world: &Arc<World>,
    cache: &Arc<Cache<K>>,
    api: Api<K>,
    config: watcher::Config,
    changed: fn(&World, &K),
) {
    // Weak would end the watches with the world; the set that owns the tasks does.
    let (world, cache, patience) = (world.clone(), cache.clone(), patience(world.nonce, &K::kind(&())));
    set.spawn(async move { cache.watch(api, config, patience, move |object| changed(&world, object)).await });
}
