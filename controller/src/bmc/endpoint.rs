//! Where a BMC is and how to log in: bmc.tinkerbell.org Machine → Secret. Read from quorum whenever a session is opened, so a
//! changed Secret is used at once.

use crate::error::{call, found};
use crate::objects::Objects;
use api::tinkerbell::Machine;
use api::tinkerbell::provider_options::RedfishOptions;
use k8s_openapi::api::core::v1::Secret;
use planner::machine::observed::{BmcProblem, name};
use planner::protocol::{self, Protocol};
use ports::{Bmc, PortError};
use std::fmt;
use std::sync::Arc;

/// Neither `Debug` nor `Display` shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedfishEndpoint {
    pub host: String,
    pub port: u16,
    pub username: String,
    pub password: Password,
    pub insecure_tls: bool,
    pub use_basic_auth: bool,
    pub system_name: Option<String>,
    /// Goes with every request: a BMC's proxy can refuse a leader that no longer leads.
    pub fencing_token: u64,
}

/// By the protocol that the bmc.tinkerbell.org Machine asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Endpoint {
    Redfish(RedfishEndpoint),
    /// Refused by name. No account is read for it.
    Ipmi {
        machine: String,
    },
}

/// Makes the drivers of BMCs, one by protocol. They connect to nothing yet.
pub trait BmcFactory: Send + Sync {
    fn redfish(&self, endpoint: &RedfishEndpoint) -> Result<Arc<dyn Bmc>, PortError>;
}

impl Endpoint {
    pub(super) fn open(&self, factory: &dyn BmcFactory) -> Result<Arc<dyn Bmc>, BmcProblem> {
        match self {
            Self::Redfish(endpoint) => factory.redfish(endpoint).map_err(super::session::problem),
            Self::Ipmi { machine } => Err(BmcProblem::NotSpoken { machine: machine.clone(), protocol: Protocol::Ipmi }),
        }
    }
}

/// From quorum.
pub(super) async fn machine(objects: &Objects, inventory: &str, name: &str) -> Result<Option<Machine>, BmcProblem> {
    let what = format!("get bmc.tinkerbell.org Machine '{name}'");
    found(call(&what, objects.namespaced::<Machine>(inventory).get(name)).await).map_err(unavailable)
}

pub(super) fn no_machine(inventory: &str, name: &str) -> BmcProblem {
    BmcProblem::Missing(format!("there is no bmc.tinkerbell.org Machine '{name}' in '{inventory}'"))
}

pub(super) async fn of(
    objects: &Objects,
    inventory: &str,
    machine: &Machine,
    fencing_token: u64,
) -> Result<Endpoint, BmcProblem> {
    let (machine, connection) = (name(&machine.metadata), &machine.spec.connection);
    match protocol::of(connection) {
        Protocol::Ipmi => return Ok(Endpoint::Ipmi { machine: machine.to_owned() }),
        Protocol::Redfish => {}
    }
    let missing = |field: &str| {
        BmcProblem::Missing(format!("bmc.tinkerbell.org Machine '{machine}' has no spec.connection.{field}"))
    };
    if connection.host.is_empty() {
        return Err(missing("host"));
    }
    let secret = connection.auth_secret_ref.as_ref().and_then(|secret| secret.name.as_deref());
    let secret = secret.ok_or_else(|| missing("authSecretRef"))?;
    let (username, password) = login(objects, inventory, secret).await?;
    let options = connection.provider_options.as_ref().and_then(|options| options.redfish.clone());
    let RedfishOptions { port, use_basic_auth, system_name } = options.unwrap_or_default();
    Ok(Endpoint::Redfish(RedfishEndpoint {
        host: connection.host.clone(),
        port: port.and_then(|port| u16::try_from(port).ok()).unwrap_or(443),
        username,
        password,
        insecure_tls: connection.insecure_tls,
        use_basic_auth: use_basic_auth.unwrap_or_default(),
        system_name,
        fencing_token,
    }))
}

fn unavailable(error: crate::error::Error) -> BmcProblem {
    BmcProblem::Failed(error.to_string())
}

/// Only Secrets of the inventory namespace are read, whatever namespace a reference names.
async fn login(objects: &Objects, inventory: &str, name: &str) -> Result<(String, Password), BmcProblem> {
    let what = format!("get Secret '{name}'");
    let secret = found(call(&what, objects.namespaced::<Secret>(inventory).get(name)).await)
        .map_err(unavailable)?
        .ok_or_else(|| BmcProblem::Missing(format!("there is no Secret '{name}' in '{inventory}'")))?;
    let value = |key: &str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key));
        let text = bytes.and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
        text.ok_or_else(|| BmcProblem::Missing(format!("Secret '{name}' has no key '{key}'")))
    };
    Ok((value("username")?, Password(value("password")?)))
}
