//! What an agent's token may do, and what only the controller may: RBAC and admission policies of the chart, asked with
//! real tokens that are bound to Nodes.

use super::session::{Said, Session};
use super::tables::{DPU_NAMESPACE, disk_attachment};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

const SYSTEM: &str = "metalplane-system";
pub(super) const CONTROLLER: &str = "--as=system:serviceaccount:metalplane-system:metalplane-controller";
const OTHER_NAMESPACE: &str = "metalplane-dpu-dpu-2";

pub(super) fn run(session: &mut Session) -> Result<()> {
    taken_up(session);
    let bound = token(session, SYSTEM, "metalplane-dpu-agent", Some("dpu-2"))?;
    let bootstrap = kubeconfig(session, "bootstrap", &bound)?;
    registers(session, &bootstrap)?;
    prepare(session)?;
    let first = kubeconfig_of(session, "bootstrap-1", SYSTEM, "metalplane-dpu-agent", "dpu-1")?;
    identity(session, &first);
    let agent = kubeconfig_of(session, "agent-1", DPU_NAMESPACE, "agent", "dpu-1")?;
    works(session, &agent);
    deletes(session);
    annotates(session);
    for name in ["bootstrap", "unbound", "bootstrap-1", "agent-1"] {
        let path = session.folder.join(format!("{name}.kubeconfig"));
        fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
    }
    Ok(())
}

/// Policies hold a moment after they are made.
fn taken_up(session: &mut Session) {
    let words = ["delete", "namespace", DPU_NAMESPACE, "--dry-run=server"];
    let said = session.until(&words, |said| said.code != 0);
    session.judged("a DPU's namespace is not deleted by hand", &said, false, &["only the controller deletes"]);
}

fn token(session: &mut Session, namespace: &str, account: &str, node: Option<&str>) -> Result<String> {
    let mut words = vec!["create", "token", account, "-n", namespace, "--duration=1h"];
    if let Some(node) = node {
        words.extend(["--bound-object-kind=Node", "--bound-object-name", node]);
        let uid = session.say(&["get", "node", node, "-o", "jsonpath={.metadata.uid}"], None).out;
        let uid = format!("--bound-object-uid={uid}");
        words.push(&uid);
        return said_token(&session.say(&words, None));
    }
    said_token(&session.say(&words, None))
}

fn said_token(said: &Said) -> Result<String> {
    ensure!(said.code == 0, "no token: {}", said.all());
    Ok(said.out.trim().to_owned())
}

/// The administrator's kubeconfig with a token in place of the certificate, which would win.
fn kubeconfig(session: &mut Session, name: &str, token: &str) -> Result<PathBuf> {
    let said = session.say(&["config", "view", "--raw", "--minify", "--flatten", "-o", "json"], None);
    let mut config: Value = serde_json::from_str(&said.out).context("read the kubeconfig")?;
    config["users"][0]["user"] = json!({ "token": token });
    let path = session.folder.join(format!("{name}.kubeconfig"));
    fs::write(&path, config.to_string()).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

fn kubeconfig_of(session: &mut Session, name: &str, namespace: &str, account: &str, node: &str) -> Result<PathBuf> {
    let token = token(session, namespace, account, Some(node))?;
    kubeconfig(session, name, &token)
}

fn may(session: &mut Session, who: &Path, what: &str, words: &[&str], input: Option<&str>) {
    let said = session.say_as(who, words, input);
    session.judged(what, &said, true, &[]);
}

fn may_not(session: &mut Session, who: &Path, what: &str, words: &[&str], input: Option<&str>, hint: &str) {
    let said = session.say_as(who, words, input);
    session.judged(what, &said, false, &[hint]);
}

fn dpu(name: &str, spec: &str) -> String {
    format!("apiVersion: metalplane.io/v1alpha1\nkind: Dpu\nmetadata: {{name: {name}}}\nspec: {spec}\n")
}

/// The token of an agent's pod registers one Dpu, empty, of its own node.
fn registers(session: &mut Session, bootstrap: &Path) -> Result<()> {
    let create = ["create", "-f", "-"];
    let own = "only the Dpu that is named after its own node";
    may_not(session, bootstrap, "an agent registers another node's Dpu", &create, Some(&dpu("dpu-9", "{}")), own);
    let empty = "an agent registers its Dpu with an empty spec";
    for spec in ["{approved: true}", "{hardwareRef: {name: rack1-u07}}", "{confirmedDown: {bootID: b}}"] {
        let what = format!("an agent registers its Dpu with {spec}");
        may_not(session, bootstrap, &what, &create, Some(&dpu("dpu-2", spec)), empty);
    }
    may(session, bootstrap, "an agent registers its own Dpu", &create, Some(&dpu("dpu-2", "{}")));
    let unbound = token(session, SYSTEM, "metalplane-dpu-agent", None)?;
    let unbound = kubeconfig(session, "unbound", &unbound)?;
    may_not(session, &unbound, "a token without a node registers", &create, Some(&dpu("dpu-3", "{}")), own);
    let approve = ["patch", "dpu", "dpu-2", "--type=merge", "-p", r#"{"spec":{"approved":true}}"#];
    may_not(session, bootstrap, "an agent approves itself", &approve, None, "Forbidden");
    for words in
        [["get", "secrets", "-A"], ["get", "bmm", "-A"], ["get", "diskattachments", "-A"], ["get", "hardware", "-A"]]
    {
        may_not(session, bootstrap, &format!("an agent's first token: {}", words.join(" ")), &words, None, "Forbidden");
    }
    Ok(())
}

/// What the controller makes for an approved Dpu.
fn prepare(session: &mut Session) -> Result<()> {
    for (namespace, node) in [(DPU_NAMESPACE, "dpu-1"), (OTHER_NAMESPACE, "dpu-2")] {
        let manifest = format!(
            "apiVersion: v1
kind: Namespace
metadata: {{name: {namespace}, labels: {{metalplane.io/dpu: {node}}}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: agent, namespace: {namespace}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: agent, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: metalplane-dpu-agent}}
subjects: [{{kind: ServiceAccount, name: agent, namespace: {namespace}}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: metalplane-{node}}}
rules:
- {{apiGroups: [metalplane.io], resources: [dpus], resourceNames: [{node}], verbs: [get, list, watch]}}
- {{apiGroups: [metalplane.io], resources: [dpus/status], resourceNames: [{node}], verbs: [patch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: metalplane-{node}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: metalplane-{node}}}
subjects: [{{kind: ServiceAccount, name: agent, namespace: {namespace}}}]
"
        );
        let said =
            session.say(&["apply", "--server-side", "--force-conflicts", "-f", "-", CONTROLLER], Some(&manifest));
        session.judged(&format!("the controller prepares {namespace}"), &said, true, &[]);
        let seed = ["create", "secret", "generic", "seed", "-n", namespace, CONTROLLER];
        session.works("and copies a secret", &seed, None, &["created"]);
    }
    Ok(())
}

/// The agent of dpu-1 gets the token of its own namespace's account, and no other.
fn identity(session: &mut Session, first: &Path) {
    let of = |account: &'static str, namespace: &'static str| ["create", "token", account, "-n", namespace];
    may(session, first, "an agent gets its identity", &of("agent", DPU_NAMESPACE), None);
    let other = of("agent", OTHER_NAMESPACE);
    may_not(session, first, "an agent gets another's identity", &other, None, "in its own DPU's namespace");
    let system = of("metalplane-controller", SYSTEM);
    may_not(session, first, "an agent gets the controller's identity", &system, None, "is forbidden");
}

fn works(session: &mut Session, agent: &Path) {
    let name = disk_attachment();
    let own = |patch: &'static str| ["patch", "da", &name, "-n", DPU_NAMESPACE, "--type=merge", "-p", patch];
    may(session, agent, "an agent reads its attachments", &["get", "da,na", "-n", DPU_NAMESPACE], None);
    may(session, agent, "and their secrets", &["get", "secret", "seed", "-n", DPU_NAMESPACE], None);
    may(session, agent, "and its Dpu", &["get", "dpu", "dpu-1"], None);
    let phase = status("DiskAttachment", &name, "phase: Attaching");
    may(session, agent, "an agent writes an attachment's status", &STATUS, Some(&phase));
    let finalizer = own(r#"{"metadata":{"finalizers":["metalplane.io/exposed"]}}"#);
    may(session, agent, "and its finalizers", &finalizer, None);
    let spec = own(r#"{"spec":{"release":true}}"#);
    may_not(session, agent, "an agent writes a spec", &spec, None, "may not change the spec");
    let label = own(r#"{"metadata":{"labels":{"a":"b"}}}"#);
    may_not(session, agent, "an agent writes a label", &label, None, "nothing but metadata.finalizers");
    let boot = status("Dpu", "dpu-1", "bootID: b-2");
    may(session, agent, "an agent writes its Dpu's status", &STATUS, Some(&boot));
    let home = status("Dpu", "dpu-1", "namespace: metalplane-dpu-dpu-2");
    may_not(session, agent, "an agent moves itself", &STATUS, Some(&home), "status.namespace is the controller's");
    let other = status("Dpu", "dpu-2", "bootID: b-2");
    may_not(session, agent, "an agent writes another's status", &STATUS, Some(&other), "Forbidden");
    let delete = ["delete", "da", &name, "-n", DPU_NAMESPACE, "--wait=false"];
    may_not(session, agent, "an agent deletes an attachment", &delete, None, "Forbidden");
    for words in [
        vec!["get", "da", "-n", OTHER_NAMESPACE],
        vec!["get", "secrets", "-n", OTHER_NAMESPACE],
        vec!["get", "secret", "rack1-u07-bmc", "-n", "metalplane-inventory"],
        vec!["get", "bmm", "-A"],
        vec!["get", "vh"],
        vec!["get", "nodes"],
    ] {
        may_not(session, agent, &format!("an agent: {}", words.join(" ")), &words, None, "Forbidden");
    }
}

/// As our programs write a status: one PATCH, without reading it first.
pub(super) const STATUS: [&str; 7] =
    ["apply", "--server-side", "--force-conflicts", "--subresource=status", "--validate=ignore", "-f", "-"];

fn status(kind: &str, name: &str, field: &str) -> String {
    let namespace = if kind == "Dpu" { String::new() } else { format!(", namespace: {DPU_NAMESPACE}") };
    format!(
        "apiVersion: metalplane.io/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}{namespace}}}\nstatus: {{{field}}}\n"
    )
}

/// What the controller keeps at a machine is not changed beside it.
fn annotates(session: &mut Session) {
    let lock = ["annotate", "bmm", "bm-01", "metalplane.io/operation=MachineSnapshot/s/u"];
    session.refused("a user locks a machine", &lock, None, &["is the controller's"]);
    let by_controller = [lock.as_slice(), &[CONTROLLER]].concat();
    session.works("the controller locks it", &by_controller, None, &["annotated"]);
    let free = ["annotate", "bmm", "bm-01", "metalplane.io/operation-"];
    session.refused("a user unlocks it", &free, None, &["delete its MachineSnapshot"]);
    let claim = ["annotate", "bmm", "bm-01", "claim.metalplane.io/root=another"];
    session.refused("a user exchanges a claim", &claim, None, &["For other content make a MachineRestore"]);
    let other = ["annotate", "bmm", "bm-01", "team=a"];
    session.works("other annotations are the user's", &other, None, &["annotated"]);
    session.works("the controller unlocks it", &[free.as_slice(), &[CONTROLLER]].concat(), None, &["annotated"]);
}

/// Nobody but the controller takes a disk from a host.
fn deletes(session: &mut Session) {
    let name = disk_attachment();
    let da = ["delete", "da", &name, "-n", DPU_NAMESPACE, "--wait=false"];
    let hint = ["only the controller deletes", "Take the disk or interface out"];
    session.refused("an administrator deletes an attachment", &da, None, &hint);
    session.refused("an administrator deletes every hold", &["delete", "vh", "--all"], None, &hint[..1]);
    session.refused("an administrator deletes every address", &["delete", "ah", "--all"], None, &hint[..1]);
    let na = ["delete", "na", "--all", "-n", DPU_NAMESPACE];
    session.refused("an administrator deletes NIC attachments", &na, None, &hint[..1]);
    let ours = [&da[..], &[CONTROLLER]].concat();
    session.works("the controller does", &ours, None, &["deleted"]);
    let waits =
        ["get", "da", &name, "-n", DPU_NAMESPACE, "-o", "jsonpath={.metadata.deletionTimestamp}{.metadata.finalizers}"];
    session.works("and it waits for the agent", &waits, None, &["metalplane.io/exposed"]);
    let plain = ["create", "namespace", "plain"];
    session.works("another namespace", &plain, None, &["created"]);
    session.works("is anybody's to delete", &["delete", "namespace", "plain", "--wait=false"], None, &["deleted"]);
}
