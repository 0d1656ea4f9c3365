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
use trust::Bundle;

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
    /// Who vouches for its certificate; `None`: whoever the controller was told vouches for all BMCs.
    pub authorities: Option<Bundle>,
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
    let secret = read(objects, inventory, secret).await?;
    let Login { username, password, authorities } = Login::of(&secret, connection.insecure_tls)?;
    let options = connection.provider_options.as_ref().and_then(|options| options.redfish.clone());
    let RedfishOptions { port, use_basic_auth, system_name } = options.unwrap_or_default();
    Ok(Endpoint::Redfish(RedfishEndpoint {
        host: connection.host.clone(),
        port: port.and_then(|port| u16::try_from(port).ok()).unwrap_or(443),
        username,
        password,
        insecure_tls: connection.insecure_tls,
        authorities,
        use_basic_auth: use_basic_auth.unwrap_or_default(),
        system_name,
        fencing_token,
    }))
}

fn unavailable(error: crate::error::Error) -> BmcProblem {
    BmcProblem::Failed(error.to_string())
}

/// Of the authorities in a BMC's Secret, as in Secrets of type kubernetes.io/tls that cert-manager writes.
const CA: &str = "ca.crt";

/// What a BMC's Secret has.
struct Login {
    username: String,
    password: Password,
    authorities: Option<Bundle>,
}

impl Login {
    fn of(secret: &Secret, insecure_tls: bool) -> Result<Self, BmcProblem> {
        let missing = |why: &str| BmcProblem::Missing(format!("Secret '{}' {why}", name(&secret.metadata)));
        let bytes = |key: &str| secret.data.as_ref().and_then(|data| data.get(key));
        let value = |key: &str| {
            let text = bytes(key).and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
            text.ok_or_else(|| missing(&format!("has no key '{key}'")))
        };
        let authorities = bytes(CA).map(|pem| Bundle::parse(&pem.0)).transpose();
        let authorities = authorities.map_err(|error| missing(&format!("has a key '{CA}' that {error}")))?;
        if insecure_tls && authorities.is_some() {
            return Err(missing(&format!(
                "has the key '{CA}', by which a certificate is verified, and spec.connection.insecureTLS of its bmc.tinkerbell.org Machine \
                 says that none is: take one of them away"
            )));
        }
        Ok(Self { username: value("username")?, password: Password(value("password")?), authorities })
    }
}

/// Only Secrets of the inventory namespace are read, whatever namespace a reference names.
async fn read(objects: &Objects, inventory: &str, name: &str) -> Result<Secret, BmcProblem> {
    let what = format!("get Secret '{name}'");
    found(call(&what, objects.namespaced::<Secret>(inventory).get(name)).await)
        .map_err(unavailable)?
        .ok_or_else(|| BmcProblem::Missing(format!("there is no Secret '{name}' in '{inventory}'")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn login(ca: Option<&str>, insecure_tls: bool) -> Result<Login, String> {
        let secret = json!({"metadata": {"name": "bmc-1"}});
        let mut secret: Secret = serde_json::from_value(secret).expect("a Secret");
        let data = [("username", Some("admin")), ("password", Some("hunter2")), (CA, ca)];
        let data = data
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), k8s_openapi::ByteString(value?.as_bytes().to_vec()))));
        secret.data = Some(data.collect());
        Login::of(&secret, insecure_tls).map_err(|problem| format!("{problem:?}"))
    }

    #[test]
    fn a_secret_may_say_who_vouches_and_nothing_of_it_is_ignored() {
        let made = rcgen::generate_simple_self_signed(["bmc".to_owned()]).expect("a certificate").cert.pem();
        for (ca, vouches) in [(None, false), (Some(made.as_str()), true)] {
            assert_eq!(login(ca, false).expect("a login").authorities.is_some(), vouches);
        }
        assert!(login(None, true).expect("a login").authorities.is_none());
        for (ca, insecure, said) in [(made.as_str(), true, "insecureTLS"), ("admin", false, "has no certificate")] {
            let error = login(Some(ca), insecure).err().expect("refused");
            assert!(error.contains("bmc-1") && error.contains(CA) && error.contains(said), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
