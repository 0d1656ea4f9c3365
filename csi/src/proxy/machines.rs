//! The cluster with the machines: its claims, and the disks of its machines. Every write rests on what was read
//! (resourceVersion, UID), names only what it changes, and touches only what this driver has made.

use crate::pool::is_node_id;
use api::machine::{AttachPhase, ClaimReference, Disk, DiskBus, DiskSource, DiskStatus};
use api::{BareMetalMachine, conditions, names};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Error};
use runtime::change::Raw;
use serde_json::json;

/// On every claim of this driver: the name that the caller of CreateVolume chose.
const VOLUME_NAME: &str = "proxy.csi.metalplane.io/volume-name";
const MANAGER: &str = "csi-proxy";
/// How often a write is tried again that others were faster than.
const ATTEMPTS: usize = 8;

#[derive(Clone)]
pub struct Machines {
    machines: Api<Raw<BareMetalMachine>>,
    claims: Api<PersistentVolumeClaim>,
}

#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error("volume {0} does not exist: there is no claim of that name, or it is none of this driver's")]
    NoSuchVolume(String),
    #[error("node {0} is no machine: a node has to be registered under the name of its BareMetalMachine")]
    NoSuchMachine(String),
    #[error("volume {claim} of that name exists and differs: {why}")]
    Incompatible { claim: String, why: String },
    #[error("volume {claim} is a disk of machine '{machine}' already, and may be of one at a time")]
    Elsewhere { claim: String, machine: String },
    #[error("volume {claim} is still a disk of machine '{machine}': detach it first")]
    InUse { claim: String, machine: String },
    #[error("machine '{0}' is being deleted")]
    Leaving(String),
    #[error("{what} not yet: {why}; it is tried again")]
    NotYet { what: String, why: String },
    #[error("{0} was changed by others {attempts} times in a row: it is tried again", attempts = ATTEMPTS)]
    Conflicts(String),
    #[error("{step}: {cause}")]
    Api { step: String, cause: String },
}

/// What a claim is to be.
pub struct NewClaim<'a> {
    pub volume_name: &'a str,
    pub size_bytes: u64,
    pub storage_class: Option<&'a str>,
}

fn failed(step: impl Into<String>) -> impl FnOnce(Error) -> MachineError {
    move |error| MachineError::Api { step: step.into(), cause: error.to_string() }
}

fn is_code(error: &Error, code: u16) -> bool {
    matches!(error, Error::Api(status) if status.code == code)
}

/// The claim of a volume. A hash: any name that a caller may choose becomes one that Kubernetes takes.
pub(super) fn claim_name(volume_name: &str) -> String {
    format!("proxy-{}", names::short(volume_name, 26))
}

/// The disk of a claim, in every machine.
pub(super) fn disk_name(claim: &str) -> String {
    format!("csi-{}", names::short(claim, 26))
}

fn is_ours(claim: &PersistentVolumeClaim) -> bool {
    claim.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(VOLUME_NAME))
}

pub(super) fn capacity(claim: &PersistentVolumeClaim) -> Option<u64> {
    let capacity = claim.status.as_ref()?.capacity.as_ref()?;
    capacity.get("storage").and_then(api::quantity::bytes)
}

pub(super) fn requested(claim: &PersistentVolumeClaim) -> Option<u64> {
    let resources = claim.spec.as_ref()?.resources.as_ref()?;
    resources.requests.as_ref()?.get("storage").and_then(api::quantity::bytes)
}

fn has_disk_of(machine: &BareMetalMachine, claim: &str) -> bool {
    let of = |disk: &Disk| disk.source.persistent_volume_claim.as_ref().is_some_and(|it| it.claim_name == claim);
    machine.spec.disks.iter().any(of)
}

impl Machines {
    pub fn new(client: Client, namespace: &str) -> Machines {
        Machines { machines: Api::namespaced(client.clone(), namespace), claims: Api::namespaced(client, namespace) }
    }

    /// `None`: there is none, or it is not ours.
    pub async fn claim(&self, claim: &str) -> Result<Option<PersistentVolumeClaim>, MachineError> {
        // What no claim can be called would be another path at the API server.
        if !claim.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-') {
            return Ok(None);
        }
        let found = self.claims.get_opt(claim).await.map_err(failed(format!("get claim '{claim}'")))?;
        Ok(found.filter(is_ours))
    }

    async fn need_claim(&self, claim: &str) -> Result<PersistentVolumeClaim, MachineError> {
        self.claim(claim).await?.ok_or_else(|| MachineError::NoSuchVolume(claim.to_owned()))
    }

    /// Makes the claim, or finds the one that an earlier try made.
    pub async fn create_claim(&self, new: &NewClaim<'_>) -> Result<PersistentVolumeClaim, MachineError> {
        let name = claim_name(new.volume_name);
        let requests = [("storage".to_owned(), api::quantity::quantity(new.size_bytes))].into();
        let claim = PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                annotations: Some([(VOLUME_NAME.to_owned(), new.volume_name.to_owned())].into()),
                ..ObjectMeta::default()
            },
            spec: Some(PersistentVolumeClaimSpec {
                access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
                volume_mode: Some("Block".to_owned()),
                storage_class_name: new.storage_class.map(str::to_owned),
                resources: Some(VolumeResourceRequirements { requests: Some(requests), ..Default::default() }),
                ..PersistentVolumeClaimSpec::default()
            }),
            status: None,
        };
        match self.claims.create(&post(), &claim).await {
            Ok(made) => Ok(made),
            Err(error) if is_code(&error, 409) => {
                let there = self.claim(&name).await?;
                let differs = |why: &str| MachineError::Incompatible { claim: name.clone(), why: why.to_owned() };
                let there = there.ok_or_else(|| differs("it is none of this driver's"))?;
                let annotations = there.metadata.annotations.as_ref();
                if annotations.and_then(|all| all.get(VOLUME_NAME)).map(String::as_str) != Some(new.volume_name) {
                    return Err(differs("it has another volume name"));
                }
                Ok(there)
            }
            Err(error) => Err(failed(format!("create claim '{name}'"))(error)),
        }
    }

    /// Deletes it, on what was read a moment ago only; a volume that is a disk is not deleted. Not there is success.
    pub async fn delete_claim(&self, claim: &str) -> Result<(), MachineError> {
        let Some(there) = self.claim(claim).await? else { return Ok(()) };
        if let Some(machine) = self.machine_with(claim).await? {
            return Err(MachineError::InUse { claim: claim.to_owned(), machine });
        }
        let preconditions = Preconditions {
            uid: there.metadata.uid.clone(),
            resource_version: there.metadata.resource_version.clone(),
        };
        if there.metadata.deletion_timestamp.is_none() {
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            match self.claims.delete(claim, &params).await {
                Ok(_) => {}
                Err(error) if is_code(&error, 404) => return Ok(()),
                Err(error) => return Err(failed(format!("delete claim '{claim}'"))(error)),
            }
        }
        match self.claim(claim).await? {
            Some(there) if there.metadata.deletion_timestamp.is_some() => {
                let finalizers = there.metadata.finalizers.unwrap_or_default().join(", ");
                let (what, why) = (format!("claim '{claim}' is gone"), format!("it is kept by {finalizers}"));
                Err(MachineError::NotYet { what, why })
            }
            _ => Ok(()),
        }
    }

    /// Asks for more; answers when the storage has it.
    pub async fn expand_claim(&self, claim: &str, size_bytes: u64) -> Result<u64, MachineError> {
        let mut there = self.need_claim(claim).await?;
        if requested(&there) < Some(size_bytes) {
            let seen = json!({"uid": there.metadata.uid, "resourceVersion": there.metadata.resource_version});
            let requests = json!({"storage": api::quantity::quantity(size_bytes)});
            let change = Patch::Merge(json!({"metadata": seen, "spec": {"resources": {"requests": requests}}}));
            // Others may write it meanwhile: the next call looks again.
            there =
                self.claims.patch(claim, &patch(), &change).await.map_err(failed(format!("grow claim '{claim}'")))?;
        }
        match capacity(&there) {
            Some(capacity) if capacity >= size_bytes => Ok(capacity),
            _ => {
                let conditions = there.status.as_ref().and_then(|status| status.conditions.as_ref());
                let said = conditions.into_iter().flatten().filter_map(|condition| condition.message.clone());
                let said: Vec<String> = said.filter(|message| !message.is_empty()).collect();
                let why = if said.is_empty() { "its own cluster has not grown it".to_owned() } else { said.join("; ") };
                Err(MachineError::NotYet { what: format!("claim '{claim}' has {size_bytes} bytes"), why })
            }
        }
    }

    /// The machine that has the claim as a disk.
    pub async fn machine_with(&self, claim: &str) -> Result<Option<String>, MachineError> {
        let all = self.machines.list(&ListParams::default()).await.map_err(failed("list machines"))?;
        let found = all.items.iter().map(|raw| &raw.object).find(|machine| has_disk_of(machine, claim));
        Ok(found.and_then(|machine| machine.metadata.name.clone()))
    }

    /// Makes the claim a disk of the machine; answers once the host can see it.
    pub async fn plug(
        &self,
        claim: &str,
        machine: &str,
        read_only: bool,
        bus: DiskBus,
    ) -> Result<DiskStatus, MachineError> {
        self.need_claim(claim).await?;
        let there = self.machine(machine).await?.ok_or_else(|| MachineError::NoSuchMachine(machine.to_owned()))?;
        if let Some(other) = self.machine_with(claim).await?.filter(|other| other != machine) {
            return Err(MachineError::Elsewhere { claim: claim.to_owned(), machine: other });
        }
        let name = disk_name(claim);
        let there = self
            .edit(there, |there| {
                if there.metadata.deletion_timestamp.is_some() {
                    return Err(MachineError::Leaving(machine.to_owned()));
                }
                match there.spec.disks.iter().find(|disk| disk.name == name) {
                    None => there.spec.disks.push(Disk {
                        name: name.clone(),
                        read_only,
                        bus,
                        source: DiskSource {
                            persistent_volume_claim: Some(ClaimReference { claim_name: claim.to_owned() }),
                            ..DiskSource::default()
                        },
                        ..Disk::default()
                    }),
                    Some(disk) if disk.read_only != read_only => {
                        let why = format!("it is on machine '{machine}' with readOnly: {}", disk.read_only);
                        return Err(MachineError::Incompatible { claim: claim.to_owned(), why });
                    }
                    Some(_) => return Ok(false),
                }
                Ok(true)
            })
            .await?;
        let status = there.status.as_ref();
        let disk = status.and_then(|status| status.disks.iter().find(|disk| disk.name == name));
        match disk {
            Some(disk) if disk.phase == AttachPhase::Attached && (disk.serial.is_some() || disk.wwid.is_some()) => {
                Ok(disk.clone())
            }
            _ => {
                let phase = disk.map_or("Pending".to_owned(), |disk| format!("{:?}", disk.phase));
                let said = status.and_then(|status| conditions::get(&status.conditions, conditions::DISKS_ATTACHED));
                let said = said.map(|condition| format!(", {}: {}", condition.reason, condition.message));
                let why = format!("{phase}{}; see: bmctl explain {machine}", said.unwrap_or_default());
                Err(MachineError::NotYet { what: format!("disk '{name}' of machine '{machine}' is attached"), why })
            }
        }
    }

    /// Takes the claim's disk out of the machine; answers once the DPU has let go. No machine has none.
    pub async fn unplug(&self, claim: &str, machine: &str) -> Result<(), MachineError> {
        let name = disk_name(claim);
        let Some(there) = self.machine(machine).await? else { return Ok(()) };
        let there = self
            .edit(there, |there| {
                let before = there.spec.disks.len();
                there.spec.disks.retain(|disk| disk.name != name);
                Ok(there.spec.disks.len() != before)
            })
            .await?;
        let disk = there.status.as_ref().and_then(|status| status.disks.iter().find(|disk| disk.name == name));
        match disk {
            None => Ok(()),
            Some(disk) => {
                let why = format!("{:?}; see: bmctl explain {machine}", disk.phase);
                Err(MachineError::NotYet { what: format!("disk '{name}' of machine '{machine}' is detached"), why })
            }
        }
    }

    async fn machine(&self, name: &str) -> Result<Option<Raw<BareMetalMachine>>, MachineError> {
        // A worker says its name itself; what no machine can be called would be another path at the API server.
        if !is_node_id(name) {
            return Ok(None);
        }
        self.machines.get_opt(name).await.map_err(failed(format!("get machine '{name}'")))
    }

    /// Reads, changes, patches what differs, again on a conflict. `change` answers whether there is anything to write.
    async fn edit(
        &self,
        mut there: Raw<BareMetalMachine>,
        change: impl Fn(&mut BareMetalMachine) -> Result<bool, MachineError>,
    ) -> Result<BareMetalMachine, MachineError> {
        let name = there.object.metadata.name.clone().unwrap_or_default();
        for _ in 0..ATTEMPTS {
            let mut wanted = there.object.clone();
            if !change(&mut wanted)? {
                return Ok(wanted);
            }
            let step = || format!("edit machine '{name}'");
            let differs = there.change(&wanted);
            let differs = differs.map_err(|cause| MachineError::Api { step: step(), cause: cause.to_string() })?;
            let Some(differs) = differs else { return Ok(wanted) };
            match self.machines.patch(&name, &patch(), &Patch::Merge(differs)).await {
                Ok(written) => return Ok(written.object),
                Err(error) if is_code(&error, 409) => {
                    let again = self.machine(&name).await?;
                    there = again.ok_or_else(|| MachineError::NoSuchMachine(name.clone()))?;
                }
                Err(error) => return Err(failed(step())(error)),
            }
        }
        Err(MachineError::Conflicts(format!("machine '{name}'")))
    }
}

fn patch() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

fn post() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}
