//! A DPU as the API server has it, and the test in the place of the controller.

use super::{ApiServer, until};
use api::attachment::{DiskAttachment, NicAttachment};
use api::machine::AttachPhase;
use api::{Dpu, labels};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use ports::volume::Volume;
use serde_json::{Value, json};

pub fn attached(object: &DiskAttachment) -> Option<()> {
    let status = object.status.as_ref()?;
    (status.phase == AttachPhase::Attached && status.exposed_boot_id.is_some()).then_some(())
}

pub struct InCluster<'a> {
    pub site: &'a ApiServer,
    pub name: String,
    pub namespace: String,
}

impl<'a> InCluster<'a> {
    /// A node on which no agent runs yet.
    pub async fn node(site: &'a ApiServer, name: &str) -> Self {
        site.apply(&[json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})]).await;
        Self { site, name: name.to_owned(), namespace: format!("metalplane-dpu-{name}") }
    }

    /// Its agent, which runs, is let in.
    pub async fn approve(&self) {
        let dpus: Api<Dpu> = Api::all(self.site.admin.clone());
        until("the Dpu is registered", async || dpus.get(&self.name).await.map_err(|error| error.to_string())).await;
        self.site.approve(&self.name, &self.namespace).await;
    }

    pub async fn until_ready_on(&self, boot: &str) {
        let dpus: Api<Dpu> = Api::all(self.site.admin.clone());
        until("the Dpu is Ready on this boot", async || {
            let status = dpus.get(&self.name).await.map_err(|error| error.to_string())?.status.unwrap_or_default();
            let ready = api::conditions::is_true(&status.conditions, api::conditions::READY);
            let is_now = ready && status.boot_id.as_deref() == Some(boot);
            is_now.then_some(()).ok_or_else(|| format!("{status:?}"))
        })
        .await;
    }

    /// Status and reason of a condition of the Dpu.
    pub async fn until_condition(&self, type_: &str, wanted: &str) {
        let dpus: Api<Dpu> = Api::all(self.site.admin.clone());
        until(&format!("{type_} is {wanted}"), async || {
            let status = dpus.get(&self.name).await.map_err(|error| error.to_string())?.status.unwrap_or_default();
            let condition = api::conditions::get(&status.conditions, type_);
            let seen = condition.map(|it| format!("{} {}", it.status, it.reason)).unwrap_or_default();
            if seen == wanted { Ok(()) } else { Err(seen) }
        })
        .await;
    }

    /// When the agent's Lease was renewed.
    pub async fn renewed(&self) -> String {
        let leases: Api<Lease> = Api::namespaced(self.site.admin.clone(), &self.namespace);
        let lease = leases.get("agent").await.expect("a Lease");
        lease.spec.and_then(|spec| spec.renew_time).map(|time| time.0.to_string()).unwrap_or_default()
    }

    pub async fn dpu(&self) -> Dpu {
        Api::all(self.site.admin.clone()).get(&self.name).await.expect("its Dpu")
    }

    /// As the controller does.
    pub async fn patch_dpu_status(&self, patch: &Value) {
        let dpus: Api<Dpu> = Api::all(self.site.admin.clone());
        dpus.patch_status(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patch");
    }

    pub fn disks(&self) -> Api<DiskAttachment> {
        Api::namespaced(self.site.admin.clone(), &self.namespace)
    }

    pub fn nics(&self) -> Api<NicAttachment> {
        Api::namespaced(self.site.admin.clone(), &self.namespace)
    }

    fn meta(&self, name: &str) -> Value {
        json!({"name": name, "namespace": self.namespace, "finalizers": [labels::FINALIZER_EXPOSED]})
    }

    /// Creates a DiskAttachment for a volume; `more` is merged into its spec.
    pub async fn disk(&self, name: &str, volume: Option<&Volume>, more: Value) -> String {
        let mut spec = json!({
            "owner": {"kind": "BareMetalMachine", "namespace": "a", "name": "m", "uid": "u"},
            "dpuName": self.name,
            "diskName": name,
            "slot": "HotPlug",
            "serial": "MP1",
            "uuid": "0d7e1f52-0000-4000-8000-000000000001",
        });
        if let Some(volume) = volume {
            spec["volume"] = json!({
                "driver": volume.driver,
                "volumeHandle": volume.handle,
                "attributes": volume.attributes,
                "persistentVolumeName": "pv",
                "claim": {"namespace": "a", "name": "c", "uid": "u"},
            });
        }
        spec.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        let object = json!({"metadata": self.meta(name), "spec": spec});
        let object = serde_json::from_value(object).expect("a DiskAttachment");
        let made = self.disks().create(&PostParams::default(), &object).await.expect("create");
        made.uid().expect("a UID")
    }

    pub async fn nic(&self, name: &str) -> String {
        let spec = json!({
            "owner": {"kind": "BareMetalMachine", "namespace": "a", "name": "m", "uid": "u"},
            "dpuName": self.name,
            "interfaceName": name,
            "vnicName": "v",
            "vnicUID": "v",
            "logicalPort": "a.v",
            "macAddress": "02:00:00:00:00:07",
            "addresses": ["10.20.0.7"],
            "mtu": 1400,
            "grant": {"epoch": 1},
        });
        let object =
            serde_json::from_value(json!({"metadata": self.meta(name), "spec": spec})).expect("a NicAttachment");
        self.nics().create(&PostParams::default(), &object).await.expect("create").uid().expect("a UID")
    }

    pub async fn patch_disk(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.disks().patch(name, &PatchParams::default(), &patch).await.expect("patch");
    }

    pub async fn delete_disk(&self, name: &str) {
        self.disks().delete(name, &DeleteParams::default()).await.expect("delete");
    }

    pub async fn until_disk<T>(&self, name: &str, what: &str, look: impl Fn(&DiskAttachment) -> Option<T>) -> T {
        until(&format!("{name}: {what}"), async || {
            let object = self.disks().get(name).await.map_err(|error| error.to_string())?;
            look(&object).ok_or_else(|| format!("{:?}", object.status))
        })
        .await
    }

    pub async fn until_gone(&self, name: &str) {
        until(&format!("{name} no longer exists"), async || match self.disks().get_opt(name).await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
    }
}
