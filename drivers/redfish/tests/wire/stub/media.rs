//! The virtual media of the stub, in the ways of real BMCs.

use super::{Request, Script};
use axum::{
    Json,
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

pub const MANAGER: &str = "/redfish/v1/Managers/1";
pub const CD: &str = "/media/Cd";
const SECOND: &str = "/media/Second";
const INSERT: &str = "/media/Cd/Insert";
const EJECT: &str = "/media/Cd/Eject";

/// What the BMC has, and how it behaves.
pub struct Media {
    /// The collection is the system's; else it is the manager's.
    pub below_system: bool,
    /// There is a drive for CDs, beside one for floppies and one for the BMC's console alone.
    pub has_drive: bool,
    /// Without actions the drive is changed by PATCH.
    pub has_actions: bool,
    pub inserted: Option<String>,
    /// What the BMC has accepted and does not show yet, and how many readings it takes.
    pub coming: Option<(u32, Option<String>)>,
    pub shown_after: u32,
    /// Parameters that are refused.
    pub refuses: &'static [&'static str],
    /// A parameter without which nothing is inserted.
    pub requires: Option<&'static str>,
    /// Is answered to whoever ejects what is not there.
    pub nothing_to_eject: u16,
    /// The next reading shows this, whatever is inserted.
    pub stale: Option<String>,
    /// The image that is inserted is not told.
    pub untold: bool,
    /// A drive shows the action that can be taken now alone, and there are several drives, as on Supermicro's.
    pub in_turn: bool,
}

impl Media {
    pub fn new() -> Self {
        Self {
            below_system: false,
            has_drive: true,
            has_actions: true,
            inserted: None,
            coming: None,
            shown_after: 0,
            refuses: &[],
            requires: None,
            nothing_to_eject: 400,
            stale: None,
            untold: false,
            in_turn: false,
        }
    }

    fn becomes(&mut self, image: Option<String>) -> Response {
        match self.shown_after {
            0 => self.inserted = image,
            // It is under way.
            _ if self.coming.as_ref().is_some_and(|(_, coming)| *coming == image) => {}
            readings => self.coming = Some((readings, image)),
        }
        StatusCode::NO_CONTENT.into_response()
    }

    fn shown(&mut self) -> Option<String> {
        match self.coming.take() {
            Some((0, image)) => self.inserted = image,
            Some((readings, image)) => self.coming = Some((readings - 1, image)),
            None => {}
        }
        self.stale.take().or_else(|| self.inserted.clone())
    }

    fn resource(&mut self) -> Value {
        let shown = self.shown();
        let mut cd = json!({"@odata.id": CD, "@odata.etag": "\"cd\"", "Id": "Cd", "MediaTypes": ["CD", "DVD"],
            "Image": shown, "Inserted": shown.is_some()});
        if self.untold {
            cd["Image"] = Value::Null;
        }
        if self.has_actions {
            if !self.in_turn || shown.is_none() {
                cd["Actions"]["#VirtualMedia.InsertMedia"] = json!({"target": INSERT});
            }
            if !self.in_turn || shown.is_some() {
                cd["Actions"]["#VirtualMedia.EjectMedia"] = json!({"target": EJECT});
            }
        }
        cd
    }

    fn insert(&mut self, parameters: &Value) -> Response {
        let refused = self.refuses.iter().find(|parameter| parameters.get(**parameter).is_some());
        let missing = self.requires.filter(|parameter| parameters.get(parameter).is_none());
        let image = parameters["Image"].as_str().unwrap_or_default();
        if let Some(parameter) = missing {
            return refuse(400, &format!("The action requires the parameter {parameter} to be present."));
        }
        if let Some(parameter) = refused {
            return refuse(400, &format!("The parameter {parameter} is not supported: {image} was not inserted."));
        }
        if self.inserted.is_some() || image.contains("broken") {
            return refuse(400, &format!("The value {image} of the parameter Image cannot be taken."));
        }
        self.becomes(Some(image.to_owned()))
    }

    fn eject(&mut self) -> Response {
        if self.inserted.is_none() {
            return refuse(self.nothing_to_eject, "There is nothing to eject.");
        }
        self.becomes(None)
    }
}

fn refuse(status: u16, said: &str) -> Response {
    let said = json!({"error": {"@Message.ExtendedInfo": [{"Message": said}]}});
    (StatusCode::from_u16(status).expect("a status"), Json(said)).into_response()
}

fn collection(id: &str, members: &[&str]) -> Response {
    let members: Vec<Value> = members.iter().map(|member| json!({"@odata.id": member})).collect();
    Json(json!({"@odata.id": id, "Members": members})).into_response()
}

/// The property that says where the virtual media are.
pub fn link() -> Value {
    json!({"@odata.id": "/media"})
}

/// `None`: it is none of these resources.
pub fn respond(script: &mut Script, request: &Request) -> Option<Response> {
    let media = script.media.as_mut()?;
    Some(match (&request.method, request.path.as_str()) {
        (&Method::GET, "/redfish/v1/Managers") => collection("/redfish/v1/Managers", &[MANAGER]),
        (&Method::GET, MANAGER) if media.below_system => Json(json!({"@odata.id": MANAGER, "Id": "1"})).into_response(),
        (&Method::GET, MANAGER) => {
            Json(json!({"@odata.id": MANAGER, "Id": "1", "VirtualMedia": link()})).into_response()
        }
        (&Method::GET, "/media") if media.in_turn => collection("/media", &[CD, SECOND]),
        (&Method::GET, SECOND) => {
            let target = json!({"#VirtualMedia.InsertMedia": {"target": "/media/Second/Insert"}});
            Json(json!({"@odata.id": SECOND, "MediaTypes": ["CD"], "Inserted": false, "Actions": target}))
                .into_response()
        }
        (&Method::GET, "/media") if media.has_drive => collection("/media", &["/media/Floppy", "/media/Console", CD]),
        (&Method::GET, "/media") => collection("/media", &["/media/Floppy"]),
        (&Method::GET, "/media/Floppy") => {
            let target = json!({"#VirtualMedia.InsertMedia": {"target": "/media/Floppy/Insert"}});
            Json(json!({"@odata.id": "/media/Floppy", "MediaTypes": ["Floppy"], "Actions": target})).into_response()
        }
        // A drive that is told by PATCH is the first one.
        (&Method::GET, "/media/Console") if !media.has_actions => StatusCode::NOT_FOUND.into_response(),
        (&Method::GET, "/media/Console") => {
            Json(json!({"@odata.id": "/media/Console", "MediaTypes": ["CD"], "Inserted": false})).into_response()
        }
        (&Method::GET, CD) => Json(media.resource()).into_response(),
        (&Method::POST, INSERT) => media.insert(&request.body),
        (&Method::POST, EJECT) => media.eject(),
        (&Method::PATCH, CD) if request.body["Image"].is_null() => media.eject(),
        (&Method::PATCH, CD) => media.insert(&request.body),
        _ => return None,
    })
}
