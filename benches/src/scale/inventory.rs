//! What administrators and tenants make: Hardware, BMC Machines, Dpus, namespaces with an image and a subnet each.

use super::{AT_ONCE, Size};
use anyhow::{Context, Result};
use api::tinkerbell::{Hardware, Machine};
use api::{BareMetalMachine, Dpu};
use futures::stream::{self, StreamExt, TryStreamExt};
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use tests::site::{INVENTORY_NAMESPACE, STORAGE_CLASS, Site};

/// A tenant has so many machines at most.
const PER_TENANT: usize = 100;
const SECRET: &str = "bmc";

pub struct Inventory {
    pub client: Client,
    pub size: Size,
}

pub fn tenant(number: usize) -> String {
    format!("tenant-{}", (number - 1) / PER_TENANT)
}

async fn create<K>(api: Api<K>, object: Value) -> Result<()>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug,
{
    let object: K = serde_json::from_value(object)?;
    let what = format!("create {} {:?}", K::kind(&()), object.meta().name);
    api.create(&PostParams::default(), &object).await.context(what).map(drop)
}

impl Inventory {
    /// Everything but the machines.
    pub async fn create(&self, site: &Site) -> Result<()> {
        site.kubectl(&[
            "create",
            "secret",
            "generic",
            SECRET,
            "-n",
            INVENTORY_NAMESPACE,
            "--from-literal=username=u",
            "--from-literal=password=p",
        ])
        .await?;
        for first in (1..=self.size.machines).step_by(PER_TENANT) {
            furnish(site, &tenant(first)).await?;
        }
        self.each(|number| self.rack(number)).await
    }

    /// The machines of all tenants, as fast as the API server takes them.
    pub async fn machines(&self) -> Result<()> {
        self.each(|number| {
            let api = Api::<BareMetalMachine>::namespaced(self.client.clone(), &tenant(number));
            create(api, machine(number))
        })
        .await
    }

    async fn each<F: Future<Output = Result<()>>>(&self, make: impl Fn(usize) -> F) -> Result<()> {
        stream::iter((1..=self.size.machines).map(make)).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn rack(&self, number: usize) -> Result<()> {
        let name = format!("server-{number}");
        let machine = json!({
            "metadata": {"name": name},
            "spec": {"connection": {"host": name, "port": 623, "insecureTLS": true,
                "authSecretRef": {"name": SECRET, "namespace": INVENTORY_NAMESPACE}}},
        });
        create(Api::<Machine>::namespaced(self.client.clone(), INVENTORY_NAMESPACE), machine).await?;
        let hardware = json!({
            "metadata": {"name": name},
            "spec": {"bmcRef": {"apiGroup": "bmc.tinkerbell.org", "kind": "Machine", "name": name}},
        });
        create(Api::<Hardware>::namespaced(self.client.clone(), INVENTORY_NAMESPACE), hardware).await?;
        let dpu = json!({
            "metadata": {"name": format!("dpu-{number}")},
            "spec": {"hardwareRef": {"name": name}, "powerDomain": "Standby", "approved": true},
        });
        create(Api::<Dpu>::all(self.client.clone()), dpu).await
    }
}

async fn furnish(site: &Site, tenant: &str) -> Result<()> {
    site.apply(&format!(
        "apiVersion: v1
kind: Namespace
metadata: {{name: {tenant}}}
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {{name: golden, namespace: {tenant}}}
spec: {{source: {{volumeSnapshotContentName: golden}}}}
---
apiVersion: metalplane.io/v1alpha1
kind: MachineImage
metadata: {{name: golden, namespace: {tenant}}}
spec: {{source: {{snapshot: {{name: golden}}}}, storageClassName: {STORAGE_CLASS}}}
---
apiVersion: metalplane.io/v1alpha1
kind: Subnet
metadata: {{name: blue, namespace: {tenant}}}
spec: {{cidr: 10.20.0.0/24}}
"
    ))
    .await?;
    let ready = r#"{"status":{"boundVolumeSnapshotContentName":"golden","readyToUse":true,"restoreSize":"4Gi"}}"#;
    let patch =
        ["patch", "volumesnapshot", "golden", "-n", tenant, "--subresource=status", "--type=merge", "-p", ready];
    site.kubectl(&patch).await.map(drop)
}

fn machine(number: usize) -> Value {
    json!({
        "metadata": {"name": format!("bm-{number}")},
        "spec": {
            "readinessProbe": {"icmp": {}},
            "disks": [{"name": "root", "bootOrder": 1, "source": {"image": {"kind": "MachineImage", "name": "golden"}}}],
            "interfaces": [{"name": "eth0", "subnet": "blue",
                "addresses": [format!("10.20.0.{}", (number - 1) % PER_TENANT + 10)]}],
            "cloudInit": {"userData": "#cloud-config\n{}\n"},
        },
    })
}
