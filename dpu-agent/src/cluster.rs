//! The API server as one DPU may use it, and its errors as a port's.

use api::{DiskAttachment, Dpu, NicAttachment, labels};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use ports::{ErrorClass, PortError};
use serde::Serialize;
use serde_json::json;
use std::future::Future;
use std::time::Duration;

/// After this the API server counts as unreachable.
pub const LIMIT: Duration = Duration::from_secs(10);

/// This DPU's own identity and namespace.
#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
    pub namespace: String,
}

impl Cluster {
    pub fn disks(&self) -> Api<DiskAttachment> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn nics(&self) -> Api<NicAttachment> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn dpus(&self) -> Api<Dpu> {
        Api::all(self.client.clone())
    }
}

/// Bounded in time; `what` names the object and the step.
pub async fn bounded<T>(what: &str, call: impl Future<Output = kube::Result<T>>) -> Result<T, PortError> {
    match tokio::time::timeout(LIMIT, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(PortError::new(class(&error), format!("{what}: {}", describe(&error)))),
        Err(_) => {
            let message = format!("{what}: the API server did not answer within {} s", LIMIT.as_secs());
            Err(PortError::new(ErrorClass::Unreachable, message))
        }
    }
}

fn class(error: &kube::Error) -> ErrorClass {
    match error {
        kube::Error::Api(status) => match status.code {
            401 | 403 => ErrorClass::Unauthorized,
            404 => ErrorClass::NotFound,
            409 => ErrorClass::Conflict,
            429 | 500..=599 => ErrorClass::Busy,
            _ => ErrorClass::Invalid,
        },
        kube::Error::SerdeError(_) => ErrorClass::Invalid,
        _ => ErrorClass::Unreachable,
    }
}

/// kube prints a status with all its fields; the message is what a person needs. Other errors hide their cause in
/// `source`.
pub fn describe(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return status.message.clone();
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Applies a whole status as its owner. With `resource_version` only if the object has not changed since; the UID keeps
/// it from an object that took over the name.
pub async fn apply_status<K>(
    api: &Api<K>,
    what: &str,
    (name, uid): (&str, &str),
    resource_version: Option<&str>,
    status: &impl Serialize,
) -> Result<K, PortError>
where
    K: kube::Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let mut object = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {"name": name, "uid": uid},
        "status": status,
    });
    if let Some(version) = resource_version {
        object["metadata"]["resourceVersion"] = json!(version);
    }
    let params = PatchParams::apply(labels::AGENT).force();
    bounded(what, api.patch_status(name, &params, &Patch::Apply(&object))).await
}
