//! The controller's half: a volume is a claim in the machines' cluster, publishing it makes it a disk of a machine.
//!
//! Nothing is waited for in here: what takes its time is answered ABORTED with what it waits for, and the sidecars, which
//! show that in an event, call again.

use super::{
    SERIAL, WWID,
    machines::{self, MachineError, Machines, NewClaim},
};
use crate::wire;
use api::machine::DiskBus;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use proto::csi::v1::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetCapabilitiesRequest,
    ControllerGetCapabilitiesResponse, ControllerGetVolumeHealthRequest, ControllerGetVolumeHealthResponse,
    ControllerGetVolumeRequest, ControllerGetVolumeResponse, ControllerListVolumeHealthRequest,
    ControllerListVolumeHealthResponse, ControllerModifyVolumeRequest, ControllerModifyVolumeResponse,
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerServiceCapability,
    ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse, CreateSnapshotRequest, CreateSnapshotResponse,
    CreateVolumeRequest, CreateVolumeResponse, DeleteSnapshotRequest, DeleteSnapshotResponse, DeleteVolumeRequest,
    DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse, GetSnapshotRequest, GetSnapshotResponse,
    ListSnapshotsRequest, ListSnapshotsResponse, ListVolumesRequest, ListVolumesResponse,
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse, Volume,
    controller_server::Controller,
    controller_service_capability::{Rpc, Type, rpc},
    validate_volume_capabilities_response::Confirmed,
    volume_capability::access_mode::Mode,
};
use std::collections::HashMap;
use tonic::{Request, Response, Status};

/// A parameter of a StorageClass: the StorageClass in the machines' cluster. Without it that cluster's default.
const STORAGE_CLASS: &str = "storageClassName";
/// The other: what the machine sees the disk as. It is in the volume's context from then on.
const BUS: &str = "bus";

const CAPABILITIES: [rpc::Type; 5] = [
    rpc::Type::CreateDeleteVolume,
    rpc::Type::PublishUnpublishVolume,
    rpc::Type::PublishReadonly,
    rpc::Type::ExpandVolume,
    rpc::Type::SingleNodeMultiWriter,
];

#[derive(Clone)]
pub struct ProxyControllerService {
    machines: Machines,
}

impl ProxyControllerService {
    pub fn new(machines: Machines) -> ProxyControllerService {
        ProxyControllerService { machines }
    }

    async fn create(&self, request: &CreateVolumeRequest) -> Result<CreateVolumeResponse, Status> {
        let volume_name = wire::required("name", &request.name)?;
        wire::supported(&request.volume_capabilities)?;
        if request.volume_content_source.is_some() {
            return Err(Status::invalid_argument(
                "volume_content_source: a proxy volume is made blank; clone the claim in the machines' cluster",
            ));
        }
        if let Some(key) = request.mutable_parameters.keys().next() {
            return Err(Status::invalid_argument(format!("mutable parameter {key} is unknown; this driver has none")));
        }
        let unknown = |key: &&String| ![STORAGE_CLASS, BUS].contains(&key.as_str()) && !key.starts_with(wire::RESERVED);
        if let Some(key) = request.parameters.keys().find(unknown) {
            let message = format!("parameter {key} is unknown; this driver knows: {STORAGE_CLASS}, {BUS}");
            return Err(Status::invalid_argument(message));
        }
        bus(&request.parameters)?;
        let volume_context = request.parameters.iter().filter(|(key, _)| *key == BUS);
        let volume_context = volume_context.map(|(key, value)| (key.clone(), value.clone())).collect();
        let range = wire::range(request.capacity_range.as_ref())?;
        let storage_class = request.parameters.get(STORAGE_CLASS).map(String::as_str);
        let new = NewClaim { volume_name, size_bytes: range.choose(None)?, storage_class };
        let claim = self.machines.create_claim(&new).await?;
        let size = size_of(&claim);
        if !range.admits(size) {
            return Err(Status::already_exists(format!("volume {volume_name} exists with {size} bytes")));
        }
        let volume_id = claim.metadata.name.unwrap_or_default();
        let volume = Volume { capacity_bytes: wire::bytes(size), volume_id, volume_context, ..Default::default() };
        Ok(CreateVolumeResponse { volume: Some(volume) })
    }

    async fn publish(
        &self,
        request: &ControllerPublishVolumeRequest,
    ) -> Result<ControllerPublishVolumeResponse, Status> {
        let claim = wire::required("volume_id", &request.volume_id)?;
        let machine = wire::required("node_id", &request.node_id)?;
        wire::supported(request.volume_capability.as_slice())?;
        let reader = request.volume_capability.as_ref().is_some_and(|it| wire::mode(it) == Mode::SingleNodeReaderOnly);
        let read_only = request.readonly || reader;
        let disk = self.machines.plug(claim, machine, read_only, bus(&request.volume_context)?).await?;
        let mut publish_context = HashMap::from([(wire::READ_ONLY.to_owned(), read_only.to_string())]);
        publish_context.extend(disk.serial.map(|serial| (SERIAL.to_owned(), serial)));
        publish_context.extend(disk.wwid.map(|wwid| (WWID.to_owned(), wwid)));
        Ok(ControllerPublishVolumeResponse { publish_context })
    }

    async fn unpublish(&self, request: &ControllerUnpublishVolumeRequest) -> Result<(), Status> {
        let claim = wire::required("volume_id", &request.volume_id)?;
        // No node means every node, and there is one at most.
        let machine = match request.node_id.as_str() {
            "" => self.machines.machine_with(claim).await?,
            machine => Some(machine.to_owned()),
        };
        match machine {
            Some(machine) => Ok(self.machines.unplug(claim, &machine).await?),
            None => Ok(()),
        }
    }

    async fn expand(&self, request: &ControllerExpandVolumeRequest) -> Result<ControllerExpandVolumeResponse, Status> {
        let claim = wire::required("volume_id", &request.volume_id)?;
        let range = wire::range(request.capacity_range.as_ref())?;
        let none = || Status::invalid_argument("capacity_range.required_bytes is missing");
        range.required.ok_or_else(none)?;
        let capacity = self.machines.expand_claim(claim, range.choose(None)?).await?;
        Ok(ControllerExpandVolumeResponse { capacity_bytes: wire::bytes(capacity), node_expansion_required: true })
    }

    async fn validate(
        &self,
        request: ValidateVolumeCapabilitiesRequest,
    ) -> Result<ValidateVolumeCapabilitiesResponse, Status> {
        let claim = wire::required("volume_id", &request.volume_id)?;
        if request.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("volume_capabilities is missing"));
        }
        self.machines.claim(claim).await?.ok_or_else(|| wire::no_volume(claim))?;
        Ok(match wire::unsupported(&request.volume_capabilities) {
            Some(message) => ValidateVolumeCapabilitiesResponse { confirmed: None, message },
            None => ValidateVolumeCapabilitiesResponse {
                confirmed: Some(Confirmed {
                    volume_context: request.volume_context,
                    volume_capabilities: request.volume_capabilities,
                    parameters: request.parameters,
                    mutable_parameters: HashMap::new(),
                }),
                message: String::new(),
            },
        })
    }
}

/// What it has, else what is asked for: a claim that binds late has nothing yet.
fn size_of(claim: &PersistentVolumeClaim) -> u64 {
    machines::capacity(claim).max(machines::requested(claim)).unwrap_or_default()
}

/// Of the parameters, or of the volume's context.
fn bus(of: &HashMap<String, String>) -> Result<DiskBus, Status> {
    match of.get(BUS).map(String::as_str) {
        None => Ok(DiskBus::default()),
        Some("NVMe") => Ok(DiskBus::NVMe),
        Some("VirtioBlk") => Ok(DiskBus::VirtioBlk),
        Some(other) => Err(Status::invalid_argument(format!("{BUS}: {other:?} is none; write NVMe or VirtioBlk"))),
    }
}

fn logged<T>(operation: &'static str, object: &str, result: Result<T, Status>) -> Result<Response<T>, Status> {
    match &result {
        Ok(_) => tracing::debug!(operation, object, "done"),
        Err(status) => tracing::warn!(operation, object, code = ?status.code(), "{}", status.message()),
    }
    result.map(Response::new)
}

fn not_served<T>(what: &str) -> Result<Response<T>, Status> {
    Err(Status::unimplemented(format!("{what} is not served in proxy mode")))
}

impl From<MachineError> for Status {
    fn from(error: MachineError) -> Status {
        let message = error.to_string();
        match error {
            MachineError::NoSuchVolume(_) | MachineError::NoSuchMachine(_) => Status::not_found(message),
            MachineError::Incompatible { .. } => Status::already_exists(message),
            MachineError::Elsewhere { .. } | MachineError::InUse { .. } | MachineError::Leaving(_) => {
                Status::failed_precondition(message)
            }
            MachineError::NotYet { .. } | MachineError::Conflicts(_) => Status::aborted(message),
            MachineError::Api { .. } => Status::unavailable(message),
        }
    }
}

#[tonic::async_trait]
impl Controller for ProxyControllerService {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        logged("CreateVolume", &request.name, self.create(&request).await)
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let id = request.into_inner().volume_id;
        wire::required("volume_id", &id)?;
        let deleted = self.machines.delete_claim(&id).await.map_err(Status::from);
        logged("DeleteVolume", &id, deleted.map(|()| DeleteVolumeResponse {}))
    }

    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Result<Response<ControllerPublishVolumeResponse>, Status> {
        let request = request.into_inner();
        logged("ControllerPublishVolume", &request.volume_id, self.publish(&request).await)
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<ControllerUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let done = self.unpublish(&request).await;
        logged("ControllerUnpublishVolume", &request.volume_id, done.map(|()| ControllerUnpublishVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        let request = request.into_inner();
        let id = request.volume_id.clone();
        logged("ValidateVolumeCapabilities", &id, self.validate(request).await)
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Result<Response<ControllerExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        logged("ControllerExpandVolume", &request.volume_id, self.expand(&request).await)
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        let capability =
            |kind: rpc::Type| ControllerServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: kind.into() })) };
        let capabilities = CAPABILITIES.map(capability).into();
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn list_volumes(&self, _: Request<ListVolumesRequest>) -> Result<Response<ListVolumesResponse>, Status> {
        not_served("ListVolumes")
    }

    async fn get_capacity(&self, _: Request<GetCapacityRequest>) -> Result<Response<GetCapacityResponse>, Status> {
        not_served("GetCapacity")
    }

    async fn create_snapshot(
        &self,
        _: Request<CreateSnapshotRequest>,
    ) -> Result<Response<CreateSnapshotResponse>, Status> {
        not_served("CreateSnapshot")
    }

    async fn delete_snapshot(
        &self,
        _: Request<DeleteSnapshotRequest>,
    ) -> Result<Response<DeleteSnapshotResponse>, Status> {
        not_served("DeleteSnapshot")
    }

    async fn list_snapshots(
        &self,
        _: Request<ListSnapshotsRequest>,
    ) -> Result<Response<ListSnapshotsResponse>, Status> {
        not_served("ListSnapshots")
    }

    async fn get_snapshot(&self, _: Request<GetSnapshotRequest>) -> Result<Response<GetSnapshotResponse>, Status> {
        not_served("GetSnapshot")
    }

    async fn controller_get_volume(
        &self,
        _: Request<ControllerGetVolumeRequest>,
    ) -> Result<Response<ControllerGetVolumeResponse>, Status> {
        not_served("ControllerGetVolume")
    }

    async fn controller_modify_volume(
        &self,
        _: Request<ControllerModifyVolumeRequest>,
    ) -> Result<Response<ControllerModifyVolumeResponse>, Status> {
        not_served("ControllerModifyVolume")
    }

    async fn controller_get_volume_health(
        &self,
        _: Request<ControllerGetVolumeHealthRequest>,
    ) -> Result<Response<ControllerGetVolumeHealthResponse>, Status> {
        not_served("ControllerGetVolumeHealth")
    }

    async fn controller_list_volume_health(
        &self,
        _: Request<ControllerListVolumeHealthRequest>,
    ) -> Result<Response<ControllerListVolumeHealthResponse>, Status> {
        not_served("ControllerListVolumeHealth")
    }
}
