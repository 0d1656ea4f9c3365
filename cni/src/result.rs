//! What a runtime is told after ADD: what the plugins before said, and our interfaces behind it.

use crate::error::Error;
use proto::interfaces::v1alpha1::Interface;
use serde_json::{Value, json};

pub(crate) const NEWEST: &str = "1.1.0";
pub(crate) const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", NEWEST];

pub(crate) fn versions() -> String {
    format!("{}\n", json!({"cniVersion": NEWEST, "supportedVersions": VERSIONS}))
}

/// As the runtime gave it.
pub(crate) fn unchanged(previous: &Value) -> String {
    format!("{previous}\n")
}

/// In the version of the configuration.
pub(crate) fn with(mut previous: Value, version: &str, netns: &str, interfaces: &[Interface]) -> Result<String, Error> {
    let result = previous.as_object_mut().ok_or_else(|| Error::invalid("prevResult is no JSON object"))?;
    for interface in interfaces {
        let index = list(result, "interfaces")?.len();
        let mut told = json!({"name": interface.name, "mac": interface.mac_address, "sandbox": netns});
        if version == NEWEST {
            told["mtu"] = json!(interface.mtu);
        }
        list(result, "interfaces")?.push(told);
        for address in &interface.addresses {
            let mut told = json!({"address": address, "interface": index});
            // Left out since 1.0.0.
            if version.starts_with('0') {
                told["version"] = json!(if address.contains(':') { "6" } else { "4" });
            }
            list(result, "ips")?.push(told);
        }
        for route in &interface.routes {
            list(result, "routes")?.push(json!({"dst": route.destination, "gw": route.gateway}));
        }
    }
    Ok(format!("{previous}\n"))
}

fn list<'a>(result: &'a mut serde_json::Map<String, Value>, member: &str) -> Result<&'a mut Vec<Value>, Error> {
    let member_of = result.entry(member).or_insert_with(|| json!([]));
    if member_of.is_null() {
        *member_of = json!([]);
    }
    member_of.as_array_mut().ok_or_else(|| Error::invalid(format!("prevResult.{member} is no list")))
}
