//! A cable, or a MAC address, in another server's Hardware: the installer that starts is not on the server whose BMC is commanded. On a
//! Hardware of its own, for what is seen of a server is in its report ever after.

use super::INVENTORY;
use super::sessions::{Start, arguments};
use crate::site::{ApiServer, until};
use api::HardwareReport;
use api::labels::SYSTEM_UUID;
use api::report::NetbootStage;
use api::tinkerbell::Hardware;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use tonic::Code;

const NAME: &str = "s4";
const MAC: &str = "52:54:00:88:00:04";
const OWN: &str = "00112233-4455-6677-8899-aabbccddeeff";
/// The first three fields in the other byte order, as some firmware has them.
const OWN_SWAPPED: &str = "33221100-5544-7766-8899-aabbccddeeff";
const OTHER: &str = "00112233-4455-6677-8899-aabbccddee00";

/// While a boot service with sessions runs.
pub async fn has_no_session(site: &ApiServer) {
    let hardware: Api<Hardware> = Api::namespaced(site.admin.clone(), INVENTORY);
    let object = json!({
        "metadata": {"name": NAME, "annotations": {SYSTEM_UUID: OWN}},
        "spec": {"interfaces": [{
            "dhcp": {"mac": MAC, "ip": {"address": "10.88.0.52", "netmask": "255.255.255.0"}},
            "netboot": {"allowPXE": true},
        }]},
    });
    let object: Hardware = serde_json::from_value(object).expect("a Hardware");
    hardware.create(&PostParams::default(), &object).await.expect("created");
    let (worker_id, pin) = arguments(MAC).await;

    let mut stranger = Start::of(&pin, &worker_id, Some(OTHER));
    for _ in 0..2 {
        let refused = stranger.session.redeem().await.expect_err("another server");
        let is_said = refused.message().starts_with("WrongServer: ") && refused.message().contains(OTHER);
        assert!(refused.code() == Code::PermissionDenied && is_said, "{refused}");
    }
    let refused = stranger.agent.next_of(&worker_id).await.expect_err("it has no session");
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    stranger.session.seed().await.expect_err("it has no session");
    let reports: Api<HardwareReport> = Api::namespaced(site.admin.clone(), INVENTORY);
    until("the report tells of the other server", async || {
        let report = reports.get(NAME).await.map_err(|error| error.to_string())?;
        let status = report.status.unwrap_or_default();
        let uuid = status.identity.as_ref().and_then(|identity| identity.uuid.as_deref());
        let is_told = |seen: &api::report::NetbootSeen| {
            seen.stage == NetbootStage::Refused && seen.message.as_ref().is_some_and(|said| said.contains(OTHER))
        };
        let is_refused = status.netboot.as_ref().is_some_and(is_told);
        if is_refused && uuid == Some(OTHER) && status.session.is_none() { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;

    // The token is not used up by it: the server itself begins.
    let mut own = Start::of(&pin, &worker_id, Some(OWN_SWAPPED));
    own.session.redeem().await.expect("the same server");
    let refused = Start::of(&pin, &worker_id, Some(OTHER)).session.redeem().await.expect_err("still another server");
    assert!(refused.message().starts_with("WrongServer: "), "{refused}");
}
