//! The virtual CD or DVD drive of a BMC (DMTF DSP0268, VirtualMedia): where it is, what is in it, and the requests that insert and
//! eject.

use crate::insertion::Insertion;
use crate::observed;
use crate::service::{Patched, Refusal, Service, members};
use nv_redfish::core::{ODataId, Raw};
use planner::host::{MediaUrl, Medium, MediumChange};
use ports::{ErrorClass, PortError};
use serde_json::{Value, json};
use std::sync::Arc;

const INSERT: &str = "#VirtualMedia.InsertMedia";
const EJECT: &str = "#VirtualMedia.EjectMedia";

/// Where the drive is, as far as this session has found out.
#[derive(Debug, Clone, Default)]
pub(crate) enum Drive {
    #[default]
    Unknown,
    At(ODataId),
    /// The BMC has none.
    Nowhere,
    /// The BMC failed when it was asked. Readings go without it until a verb needs it.
    NotShown,
}

/// A resource, and where it was read.
type Found = (ODataId, Arc<Raw>);

/// What a reading tells; `None`: there is no such drive. A BMC that cannot show its drive can be read and commanded all the same.
pub(crate) async fn read(service: &mut Service, system: &Value) -> Option<Medium> {
    match service.drive {
        Drive::Nowhere => return None,
        Drive::NotShown => return Some(Medium::Unknown),
        // A request more with each reading is for who changes something there.
        Drive::At(_) if !service.is_drive_used => return Some(Medium::Unknown),
        Drive::Unknown | Drive::At(_) => {}
    }
    match find(service, "read the virtual media", system).await {
        Ok(drive) => drive.map(|(_, drive)| observed::medium(drive.value())),
        Err(e) => {
            if e.class != ErrorClass::Busy {
                service.drive = Drive::NotShown;
            }
            Some(Medium::Unknown)
        }
    }
}

pub(crate) async fn change(service: &mut Service, change: &MediumChange) -> Result<(), PortError> {
    let step = change.to_string();
    service.is_drive_used = true;
    let (_, system) = service.system().await?;
    let Some(drive) = find(service, &step, system.value()).await? else {
        return Err(service.error(&step, ErrorClass::Unsupported, "the BMC has no virtual CD or DVD drive"));
    };
    let shown = observed::medium(drive.1.value());
    if change.is_shown(&shown) {
        return Ok(());
    }
    let MediumChange::Insert(url) = change else { return eject(service, &step, &drive).await };
    if shown == Medium::Ejected {
        return insert(service, &step, &drive, url).await;
    }
    eject(service, &step, &drive).await?;
    let drive = (drive.0.clone(), service.get(&step, &drive.0).await?);
    if observed::medium(drive.1.value()) != Medium::Ejected {
        return Err(service.error(&step, ErrorClass::Busy, "the BMC is still ejecting another medium"));
    }
    insert(service, &step, &drive, url).await
}

async fn find(service: &mut Service, step: &str, system: &Value) -> Result<Option<Found>, PortError> {
    if let Drive::At(id) = service.drive.clone() {
        match service.get(step, &id).await {
            // It may have another name since the BMC's last update.
            Err(e) if e.class == ErrorClass::NotFound => {}
            drive => return Ok(Some((id, drive?))),
        }
    }
    service.drive = Drive::Unknown;
    let found = look(service, step, system).await?;
    service.drive = found.as_ref().map_or(Drive::Nowhere, |(id, _)| Drive::At(id.clone()));
    Ok(found)
}

/// Below the system, as newer BMCs have it, or else below a manager of the system's.
async fn look(service: &mut Service, step: &str, system: &Value) -> Result<Option<Found>, PortError> {
    if let Some(drive) = drive_of(service, step, system).await? {
        return Ok(Some(drive));
    }
    for id in managers(service, step, system).await? {
        let Some(manager) = there(service, step, &id).await? else { continue };
        if let Some(drive) = drive_of(service, step, manager.value()).await? {
            return Ok(Some(drive));
        }
    }
    Ok(None)
}

async fn managers(service: &mut Service, step: &str, system: &Value) -> Result<Vec<ODataId>, PortError> {
    let managed_by = observed::links(system, "/Links/ManagedBy");
    if !managed_by.is_empty() {
        return Ok(managed_by.into_iter().map(ODataId::from).collect());
    }
    let Some(managers) = service.managers.clone() else { return Ok(Vec::new()) };
    let collection = there(service, step, &managers).await?;
    Ok(collection.map(|collection| members(collection.value())).unwrap_or_default())
}

/// Of the virtual media of a system or a manager: a drive that inserts or ejects when it is told to, or else the first. (Some are for the
/// BMC's console alone, and have no action; some show the action alone that can be taken now.)
async fn drive_of(service: &mut Service, step: &str, owner: &Value) -> Result<Option<Found>, PortError> {
    let Some(media) = owner.pointer("/VirtualMedia/@odata.id").and_then(Value::as_str) else { return Ok(None) };
    let Some(media) = there(service, step, &media.to_owned().into()).await? else { return Ok(None) };
    let mut other = None;
    for id in members(media.value()) {
        let Some(drive) = there(service, step, &id).await? else { continue };
        if !observed::is_optical(drive.value()) {
            continue;
        }
        if [INSERT, EJECT].iter().any(|action| target(drive.value(), action).is_some()) {
            return Ok(Some((id, drive)));
        }
        other = other.or(Some((id, drive)));
    }
    Ok(other)
}

/// `None`: it is named and not there.
async fn there(service: &mut Service, step: &str, id: &ODataId) -> Result<Option<Arc<Raw>>, PortError> {
    match service.get(step, id).await {
        Err(e) if matches!(e.class, ErrorClass::NotFound | ErrorClass::Unsupported) => Ok(None),
        resource => resource.map(Some),
    }
}

async fn eject(service: &mut Service, step: &str, drive: &Found) -> Result<(), PortError> {
    let sent = send(service, step, drive, EJECT, &json!({}), &json!({"Image": null, "Inserted": false})).await;
    match sent.map_err(|refusal| refusal.error) {
        // BMCs refuse to eject what is no longer there.
        Err(e) if !matches!(e.class, ErrorClass::Unreachable | ErrorClass::Unauthorized) => {
            let drive = service.get(step, &drive.0).await?;
            if observed::medium(drive.value()) == Medium::Ejected { Ok(()) } else { Err(e) }
        }
        sent => sent,
    }
}

/// A BMC that refuses the parameters has not inserted the image: it is asked with others.
async fn insert(service: &mut Service, step: &str, drive: &Found, url: &MediaUrl) -> Result<(), PortError> {
    let mut insertion = Insertion::new(url);
    loop {
        let parameters = insertion.parameters();
        let Err(refusal) = send(service, step, drive, INSERT, &parameters, &parameters).await else {
            return Ok(());
        };
        let said = refusal.said.filter(|_| refusal.error.class == ErrorClass::Invalid);
        let Some(next) = said.and_then(|said| insertion.after(&said)) else { return Err(refusal.error) };
        insertion = next;
    }
}

/// Where an action is sent; `None`: the drive does not offer it.
fn target(drive: &Value, action: &str) -> Option<String> {
    drive["Actions"][action]["target"].as_str().map(str::to_owned)
}

/// By the action where there is one; older BMCs have their virtual media changed as any other resource.
async fn send(
    service: &mut Service,
    step: &str,
    (id, drive): &Found,
    action: &str,
    parameters: &Value,
    change: &Value,
) -> Result<(), Refusal> {
    if let Some(target) = target(drive.value(), action) {
        return service.action(step, &target, parameters).await;
    }
    match service.update(step, id, drive, change).await? {
        Patched::Conflict => {
            Err(service.error(step, ErrorClass::Busy, "somebody else has changed the virtual media").into())
        }
        Patched::Done | Patched::Job(_) => Ok(()),
    }
}
