//! iSCSI: one session per attachment, with an initiator name of its own.
//!
//! The target takes over a new size with a new session only, so that such a volume grows while it is disconnected. It logs
//! in to one portal.

use super::{Claim, Held, Storage, knock};
use crate::names;
use crate::rpc::methods::bdev::{Bdev, IscsiCreate, IscsiDelete};
use crate::rpc::{Rpc, RpcError};
use async_trait::async_trait;
use planner::exposure::ExposureId;
use planner::target::{IscsiLun, Target};
use ports::{ErrorClass, PortError};

pub const DRIVER: &str = "iscsi.csi.k8s.io";

#[derive(Debug, Clone, Copy, Default)]
pub struct Iscsi;

/// As libiscsi reads it: `iscsi://<portal>/<target>/<lun>`.
fn url(place: &IscsiLun) -> String {
    let portal = place.portals.first().map(String::as_str).unwrap_or_default();
    format!("iscsi://{portal}/{}/{}", place.iqn, place.lun)
}

#[async_trait]
impl Storage for Iscsi {
    type Place = IscsiLun;

    fn driver(&self) -> &'static str {
        DRIVER
    }

    fn identity(&self, id: &ExposureId) -> String {
        format!("iqn.2026-01.io.metalplane:attachment:{}:{}", id.uid, id.epoch)
    }

    fn place(&self, target: Target) -> Option<Result<IscsiLun, PortError>> {
        match target {
            Target::Iscsi(place) => Some(Ok(place)),
            _ => None,
        }
    }

    fn key(&self, place: &IscsiLun, _: &[Bdev]) -> String {
        url(place)
    }

    async fn held(&self, _: &Rpc, bdevs: &[Bdev]) -> Result<Vec<Held>, RpcError> {
        let held = bdevs.iter().filter_map(|bdev| {
            let key = bdev.driver_specific["iscsi"]["url"].as_str()?.to_owned();
            let id = names::parse_connection(&bdev.name)?;
            Some(Held { id, name: bdev.name.clone(), key: Some(key), bdev: Some(bdev.clone()), up: true })
        });
        Ok(held.collect())
    }

    async fn attach(&self, rpc: &Rpc, claim: &Claim<'_>, place: &IscsiLun, _: &[Bdev]) -> Result<(), PortError> {
        let url = url(place);
        let create = IscsiCreate { name: claim.name, initiator_iqn: claim.identity, url: &url };
        match rpc.call(&create).await {
            Ok(_) => Ok(()),
            Err(error @ RpcError::Refused { .. }) if !error.is_exists() => {
                let portal: Vec<_> = place.portals.iter().take(1).cloned().collect();
                Err(knock::explain(&portal, ErrorClass::NotFound, &format!("{url}: {error}")).await)
            }
            Err(error) => Err(error.at(&url)),
        }
    }

    async fn detach(&self, rpc: &Rpc, held: &Held) -> Result<(), RpcError> {
        rpc.call(&IscsiDelete { name: &held.name }).await.map(drop)
    }
}
