//! The virtual CD drive as a resource (DMTF DSP0268, VirtualMedia): where this kind of server has it, what it shows, and how a medium is
//! inserted and ejected.

use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::image::{Image, Missed};
use super::message::Problem;
use super::resources::{MANAGER, collection};
use super::{Bmc, response, system};
use crate::server::personality::{Changed, Owner, VirtualDrive};

const INSERT: &str = "VirtualMedia.InsertMedia";
const EJECT: &str = "VirtualMedia.EjectMedia";
/// The BMC copies an image before the host reads it.
const METHOD: &str = "Upload";
const PROTOCOLS: [&str; 2] = ["HTTP", "HTTPS"];
/// While an image comes.
const FETCHED: &str = "virtual-cd.part";

/// What of a drive a path is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Collection,
    Drive,
    Insert,
    Eject,
}

/// What is asked for.
enum Change {
    Insert(Image),
    Eject,
}

fn folder(drive: &VirtualDrive) -> String {
    let owner = match drive.owner {
        Owner::Manager => MANAGER,
        Owner::System => system::PATH,
    };
    format!("{owner}/VirtualMedia")
}

fn path(drive: &VirtualDrive) -> String {
    format!("{}/{}", folder(drive), drive.id)
}

impl Bmc {
    /// What leads to the virtual media, at the resource of their owner.
    pub(super) fn media_of(&self, owner: Owner) -> Option<Value> {
        let drive = self.machine.personality.drive.filter(|drive| drive.owner == owner)?;
        Some(json!({ "@odata.id": folder(&drive) }))
    }

    fn part(&self, path: &str) -> Option<(VirtualDrive, Part)> {
        let drive = self.machine.personality.drive.filter(|_| self.is_of_host())?;
        let below = path.strip_prefix(&folder(&drive))?;
        if below.is_empty() {
            return Some((drive, Part::Collection));
        }
        let of_drive = below.strip_prefix('/')?.strip_prefix(drive.id)?;
        let has_actions = drive.changed != Changed::ByPatch;
        let part = match of_drive.strip_prefix("/Actions/") {
            None if of_drive.is_empty() => Part::Drive,
            Some(INSERT) if has_actions => Part::Insert,
            Some(EJECT) if has_actions => Part::Eject,
            _ => return None,
        };
        Some((drive, part))
    }

    pub(super) fn media_resource(&self, path: &str) -> Option<Value> {
        match self.part(path)? {
            (drive, Part::Collection) => Some(collection(path, "VirtualMediaCollection", "Virtual media", &[drive.id])),
            (drive, Part::Drive) => Some(self.drive(&drive)),
            (_, Part::Insert | Part::Eject) => None,
        }
    }

    /// The methods of what belongs to the drive.
    pub(super) fn media_methods(&self, path: &str) -> Option<&'static str> {
        Some(match self.part(path)? {
            (drive, Part::Drive) if drive.changed == Changed::ByPatch => "GET, HEAD, PATCH",
            (_, Part::Collection | Part::Drive) => "GET, HEAD",
            (_, Part::Insert | Part::Eject) => "POST",
        })
    }

    fn drive(&self, drive: &VirtualDrive) -> Value {
        let medium = self.machine.medium();
        let name = medium.as_ref().and_then(|medium| medium.image.rsplit('/').next());
        let mut shown = json!({
            "@odata.id": path(drive),
            "@odata.type": "#VirtualMedia.v1_6_5.VirtualMedia",
            "Id": drive.id,
            "Name": "Virtual CD",
            "MediaTypes": drive.types,
            "Image": medium.as_ref().map(|medium| &medium.image),
            "ImageName": name,
            "Inserted": medium.is_some(),
            "ConnectedVia": if medium.is_some() { "URI" } else { "NotConnected" },
            "WriteProtected": true,
            "TransferMethod": METHOD,
            "VerifyCertificate": false,
        });
        let (insert, eject) = match drive.changed {
            Changed::ByActions => (true, true),
            Changed::ByActionsInTurn => (medium.is_none(), medium.is_some()),
            Changed::ByPatch => (false, false),
        };
        let target = |action: &str| format!("{}/Actions/{action}", path(drive));
        if insert {
            shown["Actions"]["#VirtualMedia.InsertMedia"] = json!({
                "target": target(INSERT),
                "TransferMethod@Redfish.AllowableValues": [METHOD],
                "TransferProtocolType@Redfish.AllowableValues": PROTOCOLS,
            });
        }
        if eject {
            shown["Actions"]["#VirtualMedia.EjectMedia"] = json!({ "target": target(EJECT) });
        }
        shown["@odata.etag"] = json!(response::etag(&shown));
        shown
    }

    /// `None`: it is no change of the drive.
    pub(super) async fn change_media(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Option<Result<Response, Problem>> {
        let (drive, part) = self.part(path)?;
        Some(match (method, part) {
            (&Method::POST, Part::Insert) => match action(body) {
                Ok(change) => self.carry_out(change).await,
                Err(problem) => Err(problem),
            },
            (&Method::POST, Part::Eject) => self.carry_out(Change::Eject).await,
            (&Method::PATCH, Part::Drive) if drive.changed == Changed::ByPatch => {
                let asked = system::is_current(headers, &response::etag_of(&self.drive(&drive)), false);
                match asked.and_then(|()| update(body)) {
                    Ok(change) => self.carry_out(change).await,
                    Err(problem) => Err(problem),
                }
            }
            _ => return None,
        })
    }

    async fn carry_out(&self, change: Change) -> Result<Response, Problem> {
        let Ok(_turn) = self.media.try_lock() else { return Err(Problem::media_in_use()) };
        match change {
            Change::Eject => self.machine.eject_medium().await,
            Change::Insert(_) if self.machine.medium().is_some() => return Err(Problem::media_in_use()),
            Change::Insert(image) => {
                let content = self.machine.config.state(FETCHED);
                let image_shown = image.shown();
                image.fetch(&content).await.map_err(|missed| told(&image_shown, missed))?;
                self.machine.insert_medium(image_shown, &content).await.map_err(internal)?;
            }
        }
        Ok(response::empty(StatusCode::NO_CONTENT))
    }
}

fn internal(error: anyhow::Error) -> Problem {
    tracing::error!("virtual media: {error:#}");
    Problem::internal()
}

fn told(image: &str, missed: Missed) -> Problem {
    match missed {
        Missed::Unreachable => Problem::no_connection(image),
        Missed::Answered(status) if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            Problem::not_authorized_at(image, status)
        }
        Missed::Answered(_) => Problem::missing_at(image),
        Missed::TooLarge => Problem::no_room(),
        Missed::Failed(error) => internal(error),
    }
}

/// The parameters of the action.
fn action(body: &Bytes) -> Result<Change, Problem> {
    let refused = |name: &str, value: &Value| Problem::parameter_value(&shown(name, value), name, INSERT);
    let Ok(Value::Object(asked)) = serde_json::from_slice(body) else { return Err(Problem::malformed()) };
    if !asked.contains_key("Image") {
        return Err(Problem::parameter_missing(INSERT, "Image"));
    }
    let image =
        image(&asked).ok_or_else(|| Problem::parameter_format(&shown("Image", &asked["Image"]), "Image", INSERT))?;
    for (name, value) in &asked {
        match is_taken(name, value, &image) {
            Some(true) => {}
            Some(false) => return Err(refused(name, value)),
            None => return Err(Problem::parameter_unknown(INSERT, name)),
        }
    }
    Ok(Change::Insert(image))
}

/// The properties of the drive: an image is ejected by null, or by `Inserted`.
fn update(body: &Bytes) -> Result<Change, Problem> {
    let refused = |name: &str, value: &Value| Problem::bad_value(name, &json!(shown(name, value)));
    let Ok(Value::Object(asked)) = serde_json::from_slice(body) else { return Err(Problem::malformed()) };
    if asked.get("Image").is_some_and(Value::is_null) || asked.get("Inserted") == Some(&json!(false)) {
        return Ok(Change::Eject);
    }
    let image = image(&asked).ok_or_else(|| refused("Image", asked.get("Image").unwrap_or(&Value::Null)))?;
    for (name, value) in &asked {
        match is_taken(name, value, &image) {
            Some(true) => {}
            Some(false) => return Err(refused(name, value)),
            None => return Err(Problem::unknown_property(name)),
        }
    }
    Ok(Change::Insert(image))
}

fn image(asked: &Map<String, Value>) -> Option<Image> {
    let text = |name: &str| asked.get(name).and_then(Value::as_str);
    let account = text("UserName").map(|user| (user.to_owned(), text("Password").unwrap_or_default().to_owned()));
    Image::parse(text("Image")?, account)
}

/// Whether the BMC takes this value; `None`: there is no such parameter.
fn is_taken(name: &str, value: &Value, image: &Image) -> Option<bool> {
    Some(match name {
        "Image" => true,
        // A CD, which is at the host as soon as it is inserted.
        "Inserted" | "WriteProtected" => *value == true,
        "TransferMethod" => value == METHOD,
        "TransferProtocolType" => *value == image.protocol(),
        "UserName" | "Password" => value.is_string() || value.is_null(),
        _ => return None,
    })
}

/// A value as it may be repeated.
fn shown(name: &str, value: &Value) -> String {
    match name {
        // Whatever stands there instead of an URL may hold one's password.
        "Image" | "UserName" | "Password" => "***".to_owned(),
        _ => value.as_str().map_or_else(|| value.to_string(), str::to_owned),
    }
}
