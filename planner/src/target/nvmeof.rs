//! NVMe over fabrics, as csi-driver-nvmf describes a namespace. Several addresses, separated by commas, are ways to the
//! same subsystem (multipath): that is ours, no driver writes it.

use super::{Adapter, Given, Refusal, Target};
use std::net::IpAddr;

/// The attribute that every such volume has.
pub(super) const TYPE: &str = "targetTrType";

pub(super) const ADAPTER: Adapter = Adapter {
    driver: "nvmf.csi.k8s.io",
    understood: &["targetTrAddr", "targetTrPort", TYPE, "deviceUUID", "nqn"],
    read,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Tcp,
    Rdma,
}

/// The namespace with this UUID of one subsystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvmeNamespace {
    pub transport: Transport,
    /// Ways to the same subsystem; one at least.
    pub addresses: Vec<String>,
    pub port: u16,
    /// The subsystem.
    pub nqn: String,
    pub uuid: String,
}

pub(super) fn read(given: &Given<'_>) -> Result<Target, Refusal> {
    let kind = given.need(TYPE)?;
    let transport = match kind.to_ascii_lowercase().as_str() {
        "tcp" => Transport::Tcp,
        "rdma" => Transport::Rdma,
        _ => return Err(Refusal::Value { attribute: TYPE, value: kind }),
    };
    let addresses = given.need("targetTrAddr")?;
    let ways: Vec<String> = addresses.split(',').map(|way| way.trim().to_owned()).collect();
    if ways.iter().any(|way| way.parse::<IpAddr>().is_err()) {
        return Err(Refusal::Value { attribute: "targetTrAddr", value: addresses });
    }
    Ok(Target::NvmeOf(NvmeNamespace {
        transport,
        addresses: ways,
        port: given.number("targetTrPort")?,
        // The driver takes the handle where no name is given.
        nqn: given.get("nqn").unwrap_or(given.handle).to_owned(),
        uuid: given.need("deviceUUID")?,
    }))
}
