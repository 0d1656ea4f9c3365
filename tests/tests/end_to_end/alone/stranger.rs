//! Somebody who sends to a machine all the time what no rule lets in, while its switch is killed: for a moment nothing may pass, never
//! that.

use crate::flooded::{FLOOD, WATCH};
use crate::machine::{Machine, SOON, SOON_FLAG};
use anyhow::{Result, ensure};
use serde_json::json;
use tests::site::{Netns, ORDINARY_NODE, Perl, by_first_address, until};

const NAME: &str = "stranger";
const DEVICE: &str = "mpstranger";
const PAYLOAD: &str = "mp-flood-of-a-stranger";
/// Nobody listens there: what arrives is seen on its way.
const PORT: &str = "9";

pub(super) struct Stranger<'a> {
    machine: &'a Machine<'a>,
    inside: Netns,
    flood: Perl,
    watch: Perl,
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
        let watch = Perl::start(site.sandbox.enter(&dpu), &dpu, WATCH, &[PAYLOAD]).await?;
        let flood = inside.perl(site, FLOOD, &[PORT, PAYLOAD, machine.address]).await?;
        Ok(Self { machine, inside, flood, watch })
    }

    /// It has reached the machine never, and reaches it once it is in the machine's group.
    pub(super) async fn was_never_heard(mut self) -> Result<()> {
        let arrives = || self.watch.heard().iter().any(|device| device.starts_with("mp"));
        ensure!(!arrives(), "packets that no rule allows came to the machine");
        let joined = json!({"spec": {"securityGroups": null}}).to_string();
        self.machine.kubectl(&["patch", "vnic", NAME, "--type=merge", "-p", &joined]).await?;
        until("the same packets come once a rule allows them", SOON, async || {
            Ok(if arrives() { Ok(()) } else { Err(format!("they were seen on {:?}", self.watch.heard().last())) })
        })
        .await?;
        self.flood.end().await?;
        self.watch.end().await?;
        self.inside.remove(self.machine.site).await?;
        let limit = format!("--timeout={SOON_FLAG}");
        self.machine.kubectl(&["delete", &format!("vnic/{NAME}"), &format!("sg/{NAME}"), &limit]).await.map(drop)
    }
}
