//! `bmctl explain`: why a machine is not as it was asked to be. The tree is the planner's; here its objects are read, and
//! it is printed.

use crate::args::Form;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::output::structured;
use api::machine::{BareMetalMachineStatus, BootStrategy};
use api::report::HardwareReportStatus;
use api::{BareMetalMachine, HardwareReport, conditions, labels};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use planner::explain::{Explained, Node, tree};
use serde::de::DeserializeOwned;
use std::fmt::Debug;

pub async fn run(cluster: &Cluster, name: &str, form: Option<Form>) -> Result<String, Failure> {
    let machine = cluster.machine(name).await?;
    let title = title(&machine);
    let root = tree(&seen(cluster, machine).await?);
    match form {
        Some(form) => Ok(structured(form.into(), &root)?),
        None => Ok(format!("{title}\n{}", print(&root, cluster.program))),
    }
}

async fn seen(cluster: &Cluster, machine: BareMetalMachine) -> Result<Explained, Failure> {
    let params =
        ListParams::default().labels(&format!("{}={}", labels::MACHINE_UID, machine.uid().unwrap_or_default()));
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let mut explained = Explained {
        claims: allowed(cluster, claims.list(&params).await)?,
        disks: allowed(cluster, Api::all(cluster.client.clone()).list(&params).await)?,
        nics: allowed(cluster, Api::all(cluster.client.clone()).list(&params).await)?,
        seen: report(cluster, &machine).await?.map(|status| (status, Timestamp::now())),
        machine,
    };
    // Claims of the user's own have no label of ours.
    let sources = explained.machine.spec.disks.iter().filter_map(|disk| disk.source.persistent_volume_claim.as_ref());
    for source in sources {
        if let (Some(known), Ok(Some(claim))) = (&mut explained.claims, claims.get_opt(&source.claim_name).await) {
            known.push(claim);
        }
    }
    Ok(explained)
}

/// Of a machine that is being installed over the network: what was seen of its server. The inventory may be in any namespace.
async fn report(cluster: &Cluster, machine: &BareMetalMachine) -> Result<Option<HardwareReportStatus>, Failure> {
    let status = machine.status.as_ref().filter(|status| status.boot_strategy == Some(BootStrategy::Workflow));
    let installed = |status: &&BareMetalMachineStatus| conditions::is_true(&status.conditions, conditions::INSTALLED);
    let Some(hardware) = status.filter(|status| !installed(status)).and_then(|status| status.hardware_name.as_ref())
    else {
        return Ok(None);
    };
    let named = ListParams::default().fields(&format!("metadata.name={hardware}"));
    let reports: Api<HardwareReport> = Api::all(cluster.client.clone());
    let found = allowed(cluster, reports.list(&named).await)?;
    Ok(found.and_then(|all| all.into_iter().next()?.status))
}

/// `None`: the user may not read them, as a tenant may not in a DPU's namespace.
pub(crate) fn allowed<K>(
    cluster: &Cluster,
    list: kube::Result<kube::core::ObjectList<K>>,
) -> Result<Option<Vec<K>>, Failure>
where
    K: Clone + DeserializeOwned + Debug,
{
    match list {
        Ok(list) => Ok(Some(list.items)),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
        Err(error) => Err(cluster.failure(error, "")),
    }
}

fn title(machine: &BareMetalMachine) -> String {
    let state = machine.status.as_ref().and_then(|status| status.state);
    let state = state.map_or_else(|| "Unknown".to_owned(), |state| format!("{state:?}"));
    format!("{} in namespace {}: {state}", machine.name_any(), machine.namespace().unwrap_or_default())
}

fn print(root: &Node, program: &str) -> String {
    let mut text = String::new();
    branch(root, "", true, program, &mut text);
    text
}

/// What is good is one line, without what it rests on.
fn branch(node: &Node, indent: &str, last: bool, program: &str, text: &mut String) {
    let children: &[Node] = if node.is_good() && !indent.is_empty() { &[] } else { &node.children };
    let (fork, rail) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
    let below = format!("{indent}{rail}");
    let more = format!("{below}{}", if children.is_empty() { "   " } else { "│  " });
    text.push_str(&format!("{indent}{fork}{}: {}", node.subject, node.status));
    if !node.reason.is_empty() && !node.is_good() {
        text.push_str(&format!(", {}", node.reason));
    }
    if let Some(kind) = node.kind {
        text.push_str(&format!(" ({})", format!("{kind:?}").to_lowercase()));
    }
    text.push('\n');
    let about = [
        Some(node.message.replace("bmctl ", &format!("{program} "))).filter(|m| !m.is_empty() && !node.is_good()),
        node.note.as_ref().map(|note| format!("note: {note}")).filter(|_| !node.is_good() || indent.is_empty()),
        node.next.as_ref().map(|next| format!("next: {}", next.replace("bmctl ", &format!("{program} ")))),
    ];
    for line in about.into_iter().flatten() {
        text.push_str(&format!("{more}{line}\n"));
    }
    for (at, child) in children.iter().enumerate() {
        branch(child, &below, at + 1 == children.len(), program, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(subject: &str, status: &str, children: Vec<Node>) -> Node {
        Node { subject: subject.to_owned(), status: status.to_owned(), children, ..Node::default() }
    }

    #[test]
    fn what_is_good_is_short_and_what_is_not_says_what_to_do() {
        let waiting = Node {
            reason: "ClaimPending".to_owned(),
            kind: Some(planner::reason::ReasonKind::Waiting),
            message: "it is not bound. Next: bmctl explain other".to_owned(),
            ..node("VolumesReady", "False", vec![node("PersistentVolumeClaim a", "Pending", Vec::new())])
        };
        let good = node("HardwareClaimed", "True", vec![node("hidden", "True", Vec::new())]);
        let text = print(&node("Ready", "False", vec![good, waiting]), "kubectl bm");
        let expected = "\
└─ Ready: False
   ├─ HardwareClaimed: True
   └─ VolumesReady: False, ClaimPending (waiting)
      │  it is not bound. Next: kubectl bm explain other
      └─ PersistentVolumeClaim a: Pending
";
        assert_eq!(text, expected);
    }
}
