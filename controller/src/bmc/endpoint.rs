//! Where a BMC is and how to log in: Hardware, or Dpu → bmc.tinkerbell.org Machine → Secret. Read anew whenever a session
//! is opened, so a changed Secret is used at once.

use super::Which;
use crate::error::{call, found};
use crate::objects::Objects;
use api::tinkerbell::{Hardware, Machine};
use k8s_openapi::api::core::v1::Secret;
use planner::machine::observed::BmcProblem;
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
pub struct Endpoint {
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

/// Makes a BMC's driver. Connects to nothing yet.
pub trait BmcFactory: Send + Sync {
    fn open(&self, endpoint: &Endpoint) -> Result<Arc<dyn Bmc>, PortError>;
}

pub(super) async fn resolve(
    objects: &Objects,
    inventory: &str,
    which: &Which,
    fencing_token: u64,
) -> Result<Endpoint, BmcProblem> {
    let reference = match which {
        Which::Server(hardware) => of_server(objects, inventory, hardware).await?,
        Which::Dpu(machine) => machine.clone(),
    };
    let what = format!("get bmc.tinkerbell.org Machine '{reference}'");
    let machine = found(call(&what, objects.namespaced::<Machine>(inventory).get(&reference)).await);
    let machine = machine.map_err(unavailable)?.ok_or_else(|| {
        BmcProblem::Missing(format!("there is no bmc.tinkerbell.org Machine '{reference}' in '{inventory}'"))
    })?;
    let connection = machine.spec.connection;
    if connection.host.is_empty() {
        let message = format!("bmc.tinkerbell.org Machine '{reference}' has no connection.host");
        return Err(BmcProblem::Missing(message));
    }
    let secret = connection.auth_secret_ref.clone().and_then(|secret| secret.name);
    let secret = secret.ok_or_else(|| {
        BmcProblem::Missing(format!("bmc.tinkerbell.org Machine '{reference}' has no connection.authSecretRef"))
    })?;
    let (username, password) = login(objects, inventory, &secret).await?;
    let options = connection.provider_options.and_then(|options| options.redfish).unwrap_or_default();
    let port = options.port.and_then(|port| u16::try_from(port).ok()).unwrap_or(443);
    Ok(Endpoint {
        host: connection.host,
        port,
        username,
        password,
        insecure_tls: connection.insecure_tls,
        use_basic_auth: options.use_basic_auth.unwrap_or_default(),
        system_name: options.system_name,
        fencing_token,
    })
}

fn unavailable(error: crate::error::Error) -> BmcProblem {
    BmcProblem::Failed(error.to_string())
}

/// The name of the bmc.tinkerbell.org Machine of a server.
async fn of_server(objects: &Objects, inventory: &str, hardware: &str) -> Result<String, BmcProblem> {
    let api = objects.namespaced::<Hardware>(inventory);
    let hardware = found(call(&format!("get Hardware '{hardware}'"), api.get(hardware)).await).map_err(unavailable)?;
    let reference = hardware.and_then(|hardware| hardware.spec.bmc_ref);
    let reference = reference.ok_or_else(|| BmcProblem::Missing("the Hardware has no spec.bmcRef".to_owned()))?;
    Ok(reference.name)
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
