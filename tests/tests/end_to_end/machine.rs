//! One machine of a test: the tiny image, one interface, on a server that is chosen.

use super::IMAGE;
use anyhow::{Context, Result};
use serde_json::Value;
use std::time::Duration;
use tests::guest::Guest;
use tests::site::{Server, Site, until};

/// A tiny guest is up in about ten seconds; the limit is for a busy machine.
pub const BOOT: Duration = Duration::from_secs(300);
/// Of everything that takes a moment.
pub const SOON: Duration = Duration::from_secs(150);
/// The same for `--timeout`.
pub const SOON_FLAG: &str = "150s";

/// The network of the Subnet of a [`manifest`], and of one with a second family. Its router advertises: busybox has no DHCPv6.
pub const IPV4_ALONE: &str = "{cidr: 10.30.0.0/24}";
pub const BOTH_FAMILIES: &str = "{cidr: 10.30.0.0/24, ipv6Cidr: 'fd00:30::/64', ipv6Mode: SLAAC}";

/// A machine of the tiny image with one interface, on any server.
pub fn manifest(namespace: &str, name: &str, address: &str) -> String {
    format!(
        "apiVersion: metalplane.io/v1alpha1
kind: Subnet
metadata: {{name: blue, namespace: {namespace}}}
spec: {IPV4_ALONE}
---
apiVersion: metalplane.io/v1alpha1
kind: BareMetalMachine
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  readinessProbe: {{icmp: {{}}}}
  terminationGracePeriodSeconds: 5
  disks:
  - {{name: root, bootOrder: 1, source: {{image: {{kind: ClusterMachineImage, name: {IMAGE}}}}}}}
  interfaces:
  - {{name: eth0, subnet: blue, addresses: [{address}]}}
"
    )
}

pub async fn wait_ready(site: &Site, namespace: &str, name: &str) -> Result<()> {
    let (machine, limit) = (format!("bmm/{name}"), format!("--timeout={}s", BOOT.as_secs()));
    site.kubectl(&["wait", "--for=condition=Ready", &machine, "-n", namespace, &limit]).await.map(drop)
}

pub async fn status(site: &Site, namespace: &str, name: &str) -> Result<Value> {
    let machine = site.get(&["bmm", name, "-n", namespace]).await?.context("the machine no longer exists")?;
    Ok(machine["status"].clone())
}

/// The console of the guest that the machine runs on.
pub async fn guest(site: &Site, namespace: &str, name: &str) -> Result<Guest> {
    let status = status(site, namespace, name).await?;
    let hardware = status["hardwareName"].as_str().context("no hardware is claimed")?.to_owned();
    Ok(Guest::new(site.sandbox.layout(), &hardware.replace("rack1-u0", "server-")))
}

pub struct Machine<'a> {
    pub site: &'a Site,
    pub namespace: &'a str,
    pub name: &'a str,
    /// `server-1`, …
    pub server: &'static str,
    pub address: &'static str,
}

impl<'a> Machine<'a> {
    pub fn on_first(site: &'a Site, namespace: &'a str) -> Self {
        Self { site, namespace, name: "bm", server: "server-1", address: "10.30.0.7" }
    }

    pub fn on_second(site: &'a Site, namespace: &'a str) -> Self {
        Self { site, namespace, name: "bm", server: "server-2", address: "10.30.0.8" }
    }

    pub fn hardware(&self) -> String {
        self.server.replace("server-", "rack1-u0")
    }

    /// Where it runs.
    pub fn on(&self) -> Server<'a> {
        self.site.server(self.server)
    }

    pub fn guest(&self) -> Guest {
        self.on().guest()
    }

    pub fn manifest(&self) -> String {
        let hardware = format!("spec:\n  hardware: {{name: {}}}\n  readinessProbe", self.hardware());
        manifest(self.namespace, self.name, self.address).replace("spec:\n  readinessProbe", &hardware)
    }

    /// Its manifest in a Subnet of both families. The guest makes its second address of its MAC address and of what the router advertises
    /// (busybox has no DHCPv6); the VNic asks for that one.
    pub fn in_both_families(&self) -> String {
        let (one, both) = (format!("addresses: [{}]", self.address), self.both());
        let mac = format!("02:30:00:00:00:{:0>2}", self.number());
        let asked = format!("addresses: [{}, '{}'], macAddress: '{mac}'", both[0], both[1]);
        self.manifest().replace(IPV4_ALONE, BOTH_FAMILIES).replace(&one, &asked)
    }

    /// The addresses of a machine that is [`Self::in_both_families`]: IPv6 as RFC 4291 appendix A makes it of that MAC address.
    pub fn both(&self) -> [String; 2] {
        [self.address.to_owned(), format!("fd00:30::30:ff:fe00:{}", self.number())]
    }

    /// How its address ends: one or two digits, which are read as hexadecimal ones too.
    fn number(&self) -> &str {
        self.address.rsplit('.').next().unwrap_or_default()
    }

    /// A manifest of this machine with one more disk, `data`, which is the claim `mine`.
    pub fn with_own_disk(manifest: &str) -> String {
        let disk =
            "\n  - {name: data, bus: VirtioBlk, source: {persistentVolumeClaim: {claimName: mine}}}\n  interfaces:";
        manifest.replace("\n  interfaces:", disk)
    }

    /// Makes the claim `mine`.
    pub async fn apply_own_claim(&self, class: &str) -> Result<()> {
        let manifest = format!(
            "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: mine, namespace: {}}}\nspec: {{accessModes: \
             [ReadWriteOnce], volumeMode: Block, storageClassName: {class}, resources: {{requests: {{storage: 64Mi}}}}}}\n",
            self.namespace
        );
        self.site.apply(&manifest).await.map(drop)
    }

    pub async fn apply(&self) -> Result<()> {
        self.site.apply(&self.manifest()).await.map(drop)
    }

    /// kubectl in the machine's namespace.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.site.kubectl(&[&["-n", self.namespace], args].concat()).await
    }

    /// bmctl in the machine's namespace.
    pub async fn bmctl(&self, args: &[&str]) -> Result<String> {
        self.site.bmctl(&[&["-n", self.namespace], args].concat()).await
    }

    pub async fn object(&self) -> Result<Value> {
        self.site.get(&["bmm", self.name, "-n", self.namespace]).await?.context("the machine no longer exists")
    }

    pub async fn patch(&self, change: &str) -> Result<()> {
        self.kubectl(&["patch", "bmm", self.name, "--type=merge", "-p", change]).await.map(drop)
    }

    pub async fn wait_ready(&self) -> Result<()> {
        wait_ready(self.site, self.namespace, self.name).await
    }

    /// Waits for a state, such as `Stopped`, that is of the newest spec.
    pub async fn wait_state(&self, state: &str) -> Result<()> {
        until(&format!("{} is {state}", self.name), SOON, async || {
            let object = self.object().await?;
            let current = object["metadata"]["generation"] == object["status"]["observedGeneration"];
            let seen = object["status"]["state"].to_string();
            Ok(if current && object["status"]["state"] == state { Ok(()) } else { Err(seen) })
        })
        .await
    }

    /// Waits until one of its conditions has this reason; gives that condition's message.
    pub async fn says(&self, reason: &str) -> Result<String> {
        until(&format!("{} says {reason}", self.name), SOON, async || {
            let conditions = self.object().await?["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let found = conditions.iter().find(|condition| condition["reason"] == reason);
            let said = || conditions.iter().filter_map(|c| c["reason"].as_str()).collect::<Vec<_>>().join(", ");
            Ok(found.and_then(|c| c["message"].as_str()).map(str::to_owned).ok_or_else(said))
        })
        .await
    }

    /// Waits for an Event with this reason.
    pub async fn tells(&self, reason: &str) -> Result<()> {
        until(&format!("an Event {reason}"), SOON, async || {
            let events = self.kubectl(&["get", "events", "-o", "jsonpath={.items[*].reason}"]).await?;
            Ok(if events.split(' ').any(|seen| seen == reason) { Ok(()) } else { Err(events) })
        })
        .await
    }

    pub async fn plug_a_disk(&self, name: &str) -> Result<()> {
        let add = ["adddisk", self.name, name, "--size", "64Mi", "--bus", "VirtioBlk", "--wait", "--timeout", "300s"];
        self.bmctl(&add).await.map(drop)
    }

    /// Shows all machines of its namespace if something went wrong: before they are cleaned up.
    pub async fn told<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            eprintln!("{error:#}\n{}", self.kubectl(&["describe", "bmm"]).await.unwrap_or_default());
        }
        result
    }

    pub async fn delete(&self) -> Result<()> {
        self.kubectl(&["delete", "bmm", self.name, "--timeout=240s"]).await.map(drop)
    }

    /// How often this server has been sent something that changed its power, so far.
    pub fn power_actions(&self) -> Result<Vec<String>> {
        Ok(self.on().actions()?.into_iter().filter(|a| a.had_effect()).map(|a| a.action).collect())
    }
}
