//! iSCSI, as csi-driver-iscsi describes a logical unit.

use super::{Adapter, Given, Refusal, Target};

pub(super) const ADAPTER: Adapter = Adapter {
    driver: "iscsi.csi.k8s.io",
    understood: &["targetPortal", "portals", "iqn", "lun", "iscsiInterface", "discoveryCHAPAuth", "sessionCHAPAuth"],
    read,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IscsiLun {
    /// `address:port` each; the first is the one to log in to.
    pub portals: Vec<String>,
    pub iqn: String,
    pub lun: u32,
}

fn read(given: &Given<'_>) -> Result<Target, Refusal> {
    // Authentication needs a Secret, which only the driver's own node plugin reads.
    given.only("discoveryCHAPAuth", "false")?;
    given.only("sessionCHAPAuth", "false")?;
    given.only("iscsiInterface", "default")?;
    let mut portals = vec![with_port(&given.need("targetPortal")?)];
    if let Some(text) = given.get("portals") {
        let more: Vec<String> =
            serde_json::from_str(text).map_err(|_| Refusal::Value { attribute: "portals", value: text.to_owned() })?;
        portals.extend(
            more.iter().map(|portal| with_port(portal)).filter(|portal| *portal != portals[0]).collect::<Vec<_>>(),
        );
    }
    Ok(Target::Iscsi(IscsiLun { portals, iqn: given.need("iqn")?, lun: given.number("lun")? }))
}

fn with_port(portal: &str) -> String {
    if portal.contains(':') { portal.to_owned() } else { format!("{portal}:3260") }
}
