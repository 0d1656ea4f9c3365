//! Templates that read what their Hardware refers to, under the rights that the chart gives for it, as helm renders them.

use super::INVENTORY;
use super::site::{ApiServer, until};
use api::tinkerbell::workflow::WorkflowStatus;
use api::tinkerbell::{Hardware, Template, Workflow};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the service is started with.
pub const RULE: &str = r#"{"source": {"namespace": ["inventory"]}, "reference": {"resource": ["configmaps", "secrets"], "name": [{"anything-but": ["denied"]}]}}"#;
const SITE: &str = "tink";
/// Names the account that the service has here.
const USER: &str = "system:serviceaccount:metalplane-system:metalplane-dpu-agent";

/// Where there is no way out later.
pub fn prefetch() {
    if let Err(missing) = helm() {
        eprintln!("no helm: {missing}");
    }
}

fn helm() -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/build.sh");
    let output = Command::new(script).arg("helm").stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("tools/build.sh: {error}"))?;
    match output.status.success() {
        true => Ok(Path::new(String::from_utf8_lossy(&output.stdout).trim()).join("helm")),
        false => Err(format!("tools/build.sh helm: {}", output.status)),
    }
}

/// The chart's objects for `boot.references.readable`; `Err`: what helm says.
fn chart(helm: &Path, readable: &Value) -> Result<Vec<Value>, String> {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/metalplane");
    let mut command = Command::new(helm);
    command.args([
        "template",
        "metalplane",
        "--namespace=metalplane-system",
        "--show-only=templates/boot-references.yaml",
    ]);
    command.args(["--set=boot.enabled=true", "--set=boot.addresses={10.88.0.1}"]).arg(chart);
    command.arg(format!("--set-json=boot.references.readable={readable}"));
    let output = command.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let documents = text.split("\n---\n").filter(|text| text.contains("kind:"));
    Ok(documents.map(|text| serde_saphyr::from_str(text).expect("YAML")).collect())
}

async fn create<K>(site: &ApiServer, object: Value)
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + DeserializeOwned
        + serde::Serialize,
    K: Clone + Debug,
{
    let api: Api<K> = Api::namespaced(site.admin.clone(), INVENTORY);
    let object: K = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object).await.expect("created");
}

/// A Workflow whose template has this for its command.
async fn run(site: &ApiServer, name: &str, expression: &str) {
    let text = format!(
        "version: '0.1'\nname: n\ntasks:\n- name: os\n  worker: 'nobody'\n  actions:\n  - {{name: a, image: a, command: ['{expression}']}}\n"
    );
    create::<Template>(site, json!({"metadata": {"name": name}, "spec": {"data": text}})).await;
    let spec = json!({"templateRef": name, "hardwareRef": "refers"});
    create::<Workflow>(site, json!({"metadata": {"name": name}, "spec": spec})).await;
}

async fn told(site: &ApiServer, name: &str, reason: &str) -> WorkflowStatus {
    let workflows: Api<Workflow> = Api::namespaced(site.admin.clone(), INVENTORY);
    until(&format!("Workflow {name}: {reason}"), async || {
        let status = workflows.get(name).await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        let said = status.conditions.first().and_then(|condition| condition.reason.as_deref()) == Some(reason);
        if said { Ok(status) } else { Err(format!("{:?}", status.conditions)) }
    })
    .await
}

fn settings(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": SITE}, "data": {"size": "10G"}})
}

pub async fn workflows(test: &str, site: &ApiServer) {
    let helm = match helm() {
        Ok(helm) => helm,
        Err(missing) => {
            eprintln!("SKIP {test}, references: {missing}");
            return;
        }
    };
    for (readable, said) in [
        (json!([{"namespace": SITE, "resources": ["secrets"]}]), "write names"),
        (json!([{"namespace": "metalplane-seeds", "resources": ["secrets"], "names": ["a"]}]), "are of machines"),
        (json!([{"namespace": SITE, "resources": ["*"]}]), "resources"),
    ] {
        let refused = chart(&helm, &readable).expect_err(said);
        assert!(refused.contains(said), "{refused}");
    }
    site.apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SITE}})]).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password", "namespace": SITE}, "stringData": {"it": "hidden"}});
    site.apply(&[settings("settings"), settings("denied"), secret]).await;
    let readable = json!([{"namespace": SITE, "resources": ["configmaps"], "names": ["settings", "denied", "absent"]}]);
    for mut object in chart(&helm, &readable).expect("rendered") {
        if object["kind"] == "RoleBinding" {
            assert_eq!(object["subjects"][0]["name"], "metalplane-boot");
            object["subjects"] = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}]);
        }
        site.apply(&[object]).await;
    }
    let reference =
        |resource: &str, name: &str| json!({"namespace": SITE, "name": name, "version": "v1", "resource": resource});
    let references = json!({
        "given": reference("configmaps", "settings"),
        "denied": reference("configmaps", "denied"),
        "absent": reference("configmaps", "absent"),
        "password": reference("secrets", "password"),
        "escapes": reference("configmaps", "../secrets/password"),
    });
    create::<Hardware>(site, json!({"metadata": {"name": "refers"}, "spec": {"references": references}})).await;
    for (name, reason) in [
        ("denied", "ReferenceDenied"),
        ("absent", "ReferenceMissing"),
        // The rules let it be read, and the chart's Role does not.
        ("password", "ReferenceForbidden"),
        ("escapes", "ReferenceInvalid"),
    ] {
        run(site, name, &format!("{{{{ .references.{name}.data.size }}}}")).await;
        let status = told(site, name, reason).await;
        let text = serde_json::to_string(&status).expect("JSON");
        assert!(status.state.is_none() && status.tasks.is_empty() && !text.contains("hidden"), "{text}");
    }
    run(site, "given", "{{ .references.given.kind }} {{ .references.given.data.size }}").await;
    let status = told(site, "given", "Complete").await;
    assert_eq!(
        (status.state.as_deref(), &status.tasks[0].actions[0].command[..]),
        (Some("PENDING"), &["ConfigMap 10G".to_owned()][..])
    );

    // It is looked for again, though nothing tells that it is there now.
    let maps: Api<ConfigMap> = Api::namespaced(site.admin.clone(), SITE);
    let late: ConfigMap = serde_json::from_value(settings("absent")).expect("a ConfigMap");
    maps.create(&PostParams::default(), &late).await.expect("created");
    let status = told(site, "absent", "Complete").await;
    assert_eq!(status.tasks[0].actions[0].command, ["10G"]);
}
