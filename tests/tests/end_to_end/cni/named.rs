//! Case 10: a NetworkAttachmentDefinition. Multus cannot be had here: its kind is the standard's, the Pod names it, the controller reads
//! it, and cnitool makes the call that Multus makes of it.

use super::calls::is_valid;
use super::case;
use super::tool::{NETWORK, Sandbox, configure};
use crate::machine::SOON;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::site::{Site, until};

const ADDRESS: &str = "10.30.0.36";
const MAC: &str = "02:00:00:00:30:36";

/// As the Network Plumbing Working Group publishes it, in short.
const DEFINITION: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: network-attachment-definitions.k8s.cni.cncf.io}
spec:
  group: k8s.cni.cncf.io
  scope: Namespaced
  names:
    plural: network-attachment-definitions
    singular: network-attachment-definition
    kind: NetworkAttachmentDefinition
    shortNames: [net-attach-def]
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {config: {type: string}}}
";

fn config(own: &Value) -> Value {
    let mut plugin = json!({"type": "metalplane", "capabilities": {"mac": true, "ips": true}});
    plugin.as_object_mut().into_iter().for_each(|members| members.extend(own.as_object().cloned().unwrap_or_default()));
    json!({"cniVersion": "1.1.0", "name": NETWORK, "plugins": [plugin]})
}

async fn define(site: &Site, namespace: &str, name: &str, config: &Value) -> Result<()> {
    let object = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": name},
        "spec": {"config": config.to_string()},
    });
    site.apply_in(namespace, &object.to_string()).await.map(drop)
}

/// A pod that names definitions as Multus is told to, and no label of ours: that is the chart's policy to add.
fn asks(networks: &Value) -> String {
    format!("  annotations: {}\n", json!({"k8s.v1.cni.cncf.io/networks": networks.to_string()}))
}

#[test]
fn case_10_a_network_attachment_definition() {
    case("definition", async |site, namespace| {
        site.apply(DEFINITION).await?;
        let established = "crd/network-attachment-definitions.k8s.cni.cncf.io";
        site.kubectl(&["wait", "--for=condition=Established", established, "--timeout=60s"]).await?;
        let tested = definitions(site, namespace).await;
        site.delete(DEFINITION).await?;
        tested
    });
}

async fn definitions(site: &Site, namespace: &str) -> Result<()> {
    let subnet = config(&json!({"subnet": "blue"}));
    define(site, namespace, "blue", &subnet).await?;
    configure(site, &subnet).await?;
    let networks = json!([{"name": "blue", "interface": "net1", "ips": [format!("{ADDRESS}/24")], "mac": MAC}]);
    let given = json!({"ips": [format!("{ADDRESS}/24")], "mac": MAC});
    let mut one = Sandbox::of(site, namespace, "one", &asks(&networks), given).await?;
    "net1".clone_into(&mut one.ifname);
    let said = one.tool("add", NETWORK).await?.done().context("add")?;
    let result: Value = serde_json::from_str(&said).context("a result")?;
    is_valid(&result)?;
    ensure!(result["ips"][0] == json!({"address": format!("{ADDRESS}/24"), "interface": 0}), "{result}");
    ensure!(result["interfaces"][0]["mac"] == MAC, "{result}");
    one.tool("check", NETWORK).await?.done().context("check")?;
    one.end().await?;

    // One that exists, for a virtual machine in the pod: no address is set, and the MAC address is the machine's to take.
    let vnic = "apiVersion: metalplane.io/v1alpha1\nkind: VNic\nmetadata: {name: mine}\nspec: {subnet: blue}\n";
    site.apply_in(namespace, vnic).await?;
    let machine = config(&json!({"vnic": "mine", "configure": false}));
    define(site, namespace, "machine", &machine).await?;
    configure(site, &machine).await?;
    let mut two = Sandbox::of(site, namespace, "two", &asks(&json!([{"name": "machine"}])), json!({})).await?;
    "net1".clone_into(&mut two.ifname);
    let said = two.tool("add", NETWORK).await?.done().context("add of a VNic")?;
    let result: Value = serde_json::from_str(&said).context("a result")?;
    is_valid(&result)?;
    let shown = two.inside(&["ip", "-4", "-brief", "address", "show", "dev", "net1"]).await?;
    ensure!(result["ips"].is_null() && !shown.contains("10.30."), "no address is set: {shown}, {result}");
    let mac = site.kubectl(&["get", "vnic", "mine", "-n", namespace, "-o", "jsonpath={.status.macAddress}"]).await?;
    ensure!(result["interfaces"][0]["mac"] == mac.trim(), "{result}, of {mac}");
    two.inside(&["ip", "link", "set", "net1", "address", "02:00:00:00:99:99"]).await?;
    two.tool("check", NETWORK).await?.done().context("check with another MAC address")?;
    two.end().await?;
    let limit = format!("--timeout={}s", SOON.as_secs());
    site.kubectl(&["delete", "pod", "two", "-n", namespace, &limit]).await?;
    until("the VNic is there, and nobody's", SOON, async || {
        let vnic = site.get(&["vnic", "mine", "-n", namespace]).await?.context("the VNic was deleted")?;
        let marks = vnic["metadata"]["annotations"]
            .as_object()
            .map_or(0, |all| all.keys().filter(|k| k.starts_with("in-use.")).count());
        let free = vnic["status"]["holder"].is_null() && marks == 0;
        Ok(if free { Ok(()) } else { Err(vnic["status"].to_string()) })
    })
    .await
}
