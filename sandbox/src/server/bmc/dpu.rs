//! The BMC of the DPU in the server, on power of its own: it tells whether the DPU is on, and takes no orders.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::resources::{VERSION, collection};
use super::{Bmc, Of, auth, response};
use crate::server::inside;

/// As NVIDIA's calls it.
const ID: &str = "Bluefield";
const SYSTEMS: &str = "/redfish/v1/Systems";

impl Bmc {
    /// Looks at what a request may ask for.
    pub(super) async fn look(&self) {
        if let Of::Dpu(on) = &self.of {
            on.store(inside::is_there(self.machine.config.enter.as_deref()).await, Ordering::Relaxed);
        }
    }

    pub(super) fn dpu_resource(&self, path: &str, on: bool) -> Option<Value> {
        Some(match path {
            "/redfish/v1" => json!({
                "@odata.id": "/redfish/v1/",
                "@odata.type": "#ServiceRoot.v1_16_0.ServiceRoot",
                "Id": "RootService",
                "Name": "Root Service",
                "RedfishVersion": VERSION,
                "Systems": { "@odata.id": SYSTEMS },
                "SessionService": { "@odata.id": "/redfish/v1/SessionService" },
                "Links": { "Sessions": { "@odata.id": auth::SESSIONS } },
            }),
            SYSTEMS => collection(path, "ComputerSystemCollection", "Computer systems", &[ID]),
            _ if path.strip_prefix(SYSTEMS).is_some_and(|rest| rest.strip_prefix('/') == Some(ID)) => {
                self.dpu(path, on)
            }
            _ if path == "/redfish" || path.starts_with("/redfish/v1/SessionService") => self.host_resource(path)?,
            _ => return None,
        })
    }

    fn dpu(&self, path: &str, on: bool) -> Value {
        let config = &self.machine.config;
        let mut system = json!({
            "@odata.id": path,
            "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem",
            "Id": ID,
            "Name": config.dpu.as_ref().map(|dpu| dpu.name.as_str()),
            "SystemType": "DPU",
            "SerialNumber": format!("{}-DPU", config.serial_number),
            "PowerState": if on { "On" } else { "Off" },
            "Status": { "State": if on { "Enabled" } else { "StandbyOffline" }, "Health": "OK" },
        });
        system["@odata.etag"] = json!(response::etag(&system));
        system
    }
}
