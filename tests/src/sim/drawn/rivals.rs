//! Whoever asks for an address that somebody has is told so and gets nothing, and nobody loses anything by it.

use super::super::network::object;
use super::super::simulation::{Simulation, USER};
use super::draw::Description;
use super::orders::place_of;
use super::settles;
use serde_json::{Value, json};

/// One for each address of a VNic, a NatGateway or a FloatingIP that was asked for.
fn rivals(description: &Description) -> Vec<Value> {
    let rival = |of: &Value| {
        let (kind, name) = (of["kind"].as_str()?, format!("rival-{}", of["metadata"]["name"].as_str()?));
        let outside = |address: &Value| {
            let spec = json!({"providerNetwork": of["spec"]["providerNetwork"], "address": address});
            object("FloatingIP", &name, &spec)
        };
        match kind {
            "VNic" if of["spec"]["addresses"].is_array() => {
                let spec = json!({"subnet": of["spec"]["subnet"], "addresses": of["spec"]["addresses"]});
                Some(object("VNic", &name, &spec))
            }
            "NatGateway" => Some(outside(&of["spec"]["addresses"][0])),
            "FloatingIP" => Some(outside(&of["spec"]["address"])),
            _ => None,
        }
    };
    description.objects.iter().filter_map(rival).collect()
}

fn get(s: &Simulation, object: &Value) -> Value {
    let (resource, namespace, name) = place_of(object);
    s.scene.server.get(&resource, namespace, name).map(|there| Value::clone(&there)).unwrap_or_default()
}

fn wrong(s: &Simulation, rival: &Value) -> Option<String> {
    let there = get(s, rival);
    let reason = if rival["kind"] == "VNic" { "AddressTaken" } else { "ExternalAddressTaken" };
    let mut said = there["status"]["conditions"].as_array().into_iter().flatten();
    let is_told = said.any(|said| said["status"] == "False" && said["reason"] == reason);
    let some = there["status"]["addresses"].as_array().is_some_and(|all| !all.is_empty());
    let has = some || !there["status"]["address"].is_null();
    let name = &rival["metadata"]["name"];
    (!is_told || has).then(|| format!("{name} does not say {reason}, or has an address: {}", there["status"]))
}

/// They come, and go again.
pub(super) async fn ask(s: &Simulation, description: &Description) -> Result<(), String> {
    let rivals = rivals(description);
    for rival in &rivals {
        s.create(&place_of(rival).0, USER, rival.clone());
    }
    settles(s, |s| rivals.iter().find_map(|rival| wrong(s, rival))).await?;
    for rival in &rivals {
        let (resource, namespace, name) = place_of(rival);
        s.delete(&resource, namespace, name);
    }
    settles(s, |s| {
        let left = rivals.iter().find(|rival| !get(s, rival).is_null());
        left.map(|rival| format!("{} exists", rival["metadata"]["name"]))
    })
    .await
}
