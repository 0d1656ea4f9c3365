//! Somebody who sends to a machine all the time what no rule lets in, while its switch is killed: for a moment nothing may pass, never
//! that.

use crate::flooded::{FLOOD, Flood, arriving};
use crate::machine::{Machine, SOON, SOON_FLAG};
use anyhow::{Result, ensure};
use serde_json::json;
use tests::site::{Netns, ORDINARY_NODE, by_first_address, until};

const NAME: &str = "stranger";
const DEVICE: &str = "mpstranger";
/// To each address of the machine.
const PAYLOADS: [&str; 2] = ["mp-flood-of-a-stranger-by-ipv4", "mp-flood-of-a-stranger-by-ipv6"];

pub(super) struct Stranger<'a> {
    machine: &'a Machine<'a>,
    inside: Netns,
    floods: Vec<Flood>,
}

impl<'a> Stranger<'a> {
    /// A member of the machine's Subnet, on another node, in a group of its own.
    pub(super) async fn sends_to(machine: &'a Machine<'a>) -> Result<Self> {
        let (site, namespace, dpu) = (machine.site, machine.namespace, machine.on().dpu());
        let vnic = json!({"subnet": "blue", "nodeName": ORDINARY_NODE, "securityGroups": [NAME]});
        for (kind, spec) in [("SecurityGroup", json!({"vpc": {"name": "default"}})), ("VNic", vnic)] {
            let object =
                json!({"apiVersion": "metalplane.io/v1alpha1", "kind": kind, "metadata": {"name": NAME}, "spec": spec});
            site.apply_in(namespace, &object.to_string()).await?;
        }
        let vnic = site.assigned_vnic(namespace, NAME).await?;
        let inside = site.netns_of_vnic(&vnic, ORDINARY_NODE, DEVICE, by_first_address).await?;
        site.ports_are_up(&[vnic["metadata"]["uid"].as_str().unwrap_or_default()]).await?;
        let mut floods = Vec::new();
        for (address, payload) in machine.both().iter().zip(PAYLOADS) {
            let start = async |words: &[&str]| inside.perl(site, FLOOD, words).await;
            floods.push(Flood::begun(site, &dpu, (address, payload), start).await?);
        }
        Ok(Self { machine, inside, floods })
    }

    /// It has reached the machine never, and reaches it once it is in the machine's group.
    pub(super) async fn was_never_heard(mut self) -> Result<()> {
        let arrived = arriving(&self.floods);
        ensure!(arrived.is_empty(), "packets that no rule allows came to the machine: to {arrived:?}");
        let joined = json!({"spec": {"securityGroups": null}}).to_string();
        self.machine.kubectl(&["patch", "vnic", NAME, "--type=merge", "-p", &joined]).await?;
        until("the same packets come once a rule allows them", SOON, async || {
            let arrived = arriving(&self.floods);
            Ok(if arrived.len() == PAYLOADS.len() { Ok(()) } else { Err(format!("to {arrived:?} alone")) })
        })
        .await?;
        for flood in self.floods {
            flood.end().await?;
        }
        self.inside.remove(self.machine.site).await?;
        let limit = format!("--timeout={SOON_FLAG}");
        self.machine.kubectl(&["delete", &format!("vnic/{NAME}"), &format!("sg/{NAME}"), &limit]).await.map(drop)
    }
}
