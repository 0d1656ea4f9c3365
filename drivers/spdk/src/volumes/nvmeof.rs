//! NVMe over fabrics: one controller per attachment, with a host NQN of its own, which is what the storage knows it by
//! and refuses when it is fenced ([`crate::fence`]).
//!
//! A subsystem holds one volume. A lost way is tried again for ever, once a second, under the granted identity; I/O
//! waits meanwhile. With several ways the target goes on with those that are left.

use super::{Claim, Held, Storage, knock};
use crate::names;
use crate::rpc::methods::bdev::{Bdev, GetBdevs};
use crate::rpc::methods::nvme::{AttachController, Controller, DetachController, Family, GetControllers, Multipath};
use crate::rpc::{Rpc, RpcError};
use async_trait::async_trait;
use planner::exposure::ExposureId;
use planner::target::{NvmeNamespace, Target, Transport};
use ports::volume::Fence;
use ports::{ErrorClass, PortError};

pub const DRIVER: &str = "nvmf.csi.k8s.io";

#[derive(Debug, Clone, Copy, Default)]
pub struct NvmeOf;

/// The host NQN of an attachment.
pub fn host_nqn(id: &ExposureId) -> String {
    format!("nqn.2026-01.io.metalplane:attachment:{}:{}", id.uid, id.epoch)
}

/// The inverse of [`host_nqn`].
pub fn parse_host_nqn(nqn: &str) -> Option<ExposureId> {
    let (uid, epoch) = nqn.strip_prefix("nqn.2026-01.io.metalplane:attachment:")?.rsplit_once(':')?;
    names::is_valid_uid(uid).then_some(())?;
    Some(ExposureId { uid: uid.to_owned(), epoch: epoch.parse().ok()? })
}

/// The bdevs that came with a controller: its name, `n`, a number.
fn namespaces<'a>(controller: &'a Controller, bdevs: &'a [Bdev]) -> impl Iterator<Item = &'a Bdev> {
    bdevs.iter().filter(|bdev| {
        let number = bdev.name.strip_prefix(&controller.name).and_then(|rest| rest.strip_prefix('n'));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    })
}

/// The namespace that came has to be the volume.
async fn is_it(rpc: &Rpc, name: &str, place: &NvmeNamespace) -> Result<(), PortError> {
    let found = rpc.call(&GetBdevs { name: Some(name) }).await.map_err(|error| error.at(name))?;
    match found.first() {
        Some(bdev) if bdev.uuid.eq_ignore_ascii_case(&place.uuid) => Ok(()),
        other => {
            let uuid = other.map(|bdev| bdev.uuid.as_str()).unwrap_or_default();
            let cause = format!("{} holds {uuid}, not {}", place.nqn, place.uuid);
            Err(PortError::new(ErrorClass::NotFound, cause))
        }
    }
}

/// RDMA has no port to knock at: its storage counts as away.
async fn refused_or_away(place: &NvmeNamespace, cause: &str) -> PortError {
    let at = |address: &String| match address.contains(':') {
        true => format!("[{address}]:{}", place.port),
        false => format!("{address}:{}", place.port),
    };
    let places: Vec<_> = place.addresses.iter().map(at).collect();
    let cause = format!("{}: {cause}", place.nqn);
    match place.transport {
        Transport::Tcp => knock::explain(&places, ErrorClass::Unauthorized, &cause).await,
        Transport::Rdma => PortError::new(ErrorClass::Unreachable, format!("{}: {cause}", places.join(", "))),
    }
}

#[async_trait]
impl Storage for NvmeOf {
    type Place = NvmeNamespace;

    fn driver(&self) -> &'static str {
        DRIVER
    }

    fn fence(&self) -> Fence {
        Fence::TargetAcl
    }

    fn identity(&self, id: &ExposureId) -> String {
        host_nqn(id)
    }

    fn place(&self, target: Target) -> Option<Result<NvmeNamespace, PortError>> {
        match target {
            Target::NvmeOf(place) => Some(Ok(place)),
            _ => None,
        }
    }

    fn key(&self, place: &NvmeNamespace, _: &[Bdev]) -> String {
        place.nqn.clone()
    }

    async fn held(&self, rpc: &Rpc, bdevs: &[Bdev]) -> Result<Vec<Held>, RpcError> {
        let controllers = rpc.call(&GetControllers {}).await?;
        let held = controllers.iter().filter_map(|controller| {
            Some(Held {
                id: names::parse_connection(&controller.name)?,
                name: controller.name.clone(),
                key: controller.ctrlrs.first().map(|way| way.trid.subnqn.clone()),
                bdev: namespaces(controller, bdevs).next().cloned(),
                up: controller.ctrlrs.iter().any(|way| way.is_up()),
            })
        });
        Ok(held.collect())
    }

    async fn attach(
        &self,
        rpc: &Rpc,
        claim: &Claim<'_>,
        place: &NvmeNamespace,
        bdevs: &[Bdev],
    ) -> Result<(), PortError> {
        if let Some(other) = bdevs.iter().find(|bdev| bdev.uuid.eq_ignore_ascii_case(&place.uuid)) {
            let cause = format!("the target has {} already, as {}", place.uuid, other.name);
            return Err(PortError::new(ErrorClass::Conflict, cause));
        }
        let mut names = Vec::new();
        let mut failed = None;
        for address in &place.addresses {
            let attach = AttachController {
                name: claim.name,
                trtype: match place.transport {
                    Transport::Tcp => "TCP",
                    Transport::Rdma => "RDMA",
                },
                adrfam: if address.contains(':') { Family::Ipv6 } else { Family::Ipv4 },
                traddr: address,
                trsvcid: place.port.to_string(),
                subnqn: &place.nqn,
                hostnqn: claim.identity,
                multipath: Multipath::Multipath,
                ctrlr_loss_timeout_sec: -1,
                reconnect_delay_sec: 1,
                fast_io_fail_timeout_sec: 0,
            };
            match rpc.call(&attach).await {
                Ok(came) => names.extend(came),
                Err(error @ RpcError::Unreachable(_)) => return Err(error.at(&place.nqn)),
                Err(error) => failed = Some(error),
            }
        }
        names.sort();
        names.dedup();
        match (names.as_slice(), failed) {
            ([], Some(error)) => return Err(refused_or_away(place, &error.to_string()).await),
            (_, Some(error)) => tracing::warn!(%error, nqn = place.nqn, "one of several ways to a volume is missing"),
            (_, None) => {}
        }
        match names.as_slice() {
            // Whoever asked sees that no bdev came.
            [] => Ok(()),
            [name] => is_it(rpc, name, place).await,
            several => {
                let cause = format!("{} has {} namespaces, and has to hold one volume", place.nqn, several.len());
                Err(PortError::new(ErrorClass::Invalid, cause))
            }
        }
    }

    async fn detach(&self, rpc: &Rpc, held: &Held) -> Result<(), RpcError> {
        rpc.call(&DetachController { name: &held.name }).await.map(drop)
    }

    async fn why_silent(&self, place: &NvmeNamespace) -> PortError {
        refused_or_away(place, "nothing is behind the connection that is there").await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_nqns_are_read_back() {
        for uid in ["0b5c9a4e-9f0e-4f8e-8a53-6a1c6f0f8b11", "b-c"] {
            let id = ExposureId { uid: uid.to_owned(), epoch: 30 };
            assert_eq!(parse_host_nqn(&host_nqn(&id)), Some(id));
        }
        for foreign in ["nqn.2014-08.org.nvmexpress:uuid:1", "nqn.2026-01.io.metalplane:attachment:a", ""] {
            assert_eq!(parse_host_nqn(foreign), None, "{foreign}");
        }
    }
}
