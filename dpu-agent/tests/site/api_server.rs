//! A real API server with RBAC. The rights that the agent gets are the chart's.

use super::until;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::discovery::ApiResource;
use kube::{Api, Client, Config, ResourceExt};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Who the agents' pods are.
const BOOTSTRAP: &str = "system:serviceaccount:metalplane-system:metalplane-dpu-agent";
/// By which they are known: at first by the one and by its successor, after a renewal by the successor alone.
const TOKENS: [&str; 2] = ["bootstrap", "renewed"];

pub struct ApiServer {
    pub admin: Client,
    pub kubeconfig: PathBuf,
    /// The same account as a pod has it: the certificate's authority, and the token in a file.
    pub of_a_pod: PathBuf,
    port: u16,
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// kube-apiserver, and how it is started.
    server: Process,
    program: PathBuf,
    flags: Vec<String>,
    _etcd: Process,
    dir: TempDir,
}

/// Killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("a child can be ended");
    }
}

/// The folder of etcd and kube-apiserver. Building them needs a network, which a namespace of the test's own does not have.
pub fn programs() -> Result<PathBuf, String> {
    if let Some(folder) = std::env::var_os("KUBEBUILDER_ASSETS") {
        return Ok(folder.into());
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/build.sh");
    let output = Command::new(script).arg("kubernetes").stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("tools/build.sh: {error}"))?;
    if !output.status.success() {
        return Err(format!("tools/build.sh kubernetes: {}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().into())
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

impl ApiServer {
    /// `Err`: a part is absent, and the test is to be skipped.
    pub async fn start() -> Result<Self, String> {
        let programs = programs()?;
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let path = |name: &str| dir.path().join(name).display().to_string();
        let key = Command::new("openssl").args(["genrsa", "-out", &path("sa.key"), "2048"]).output();
        key.map_err(|error| format!("openssl: {error}"))?;
        let (client, peer, port) = (free_port(), free_port(), free_port());
        let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let run = |program: &str, flags: &[String]| {
            let log = File::create(path(&format!("{program}.log"))).map_err(|error| error.to_string())?;
            let started = Command::new(programs.join(program)).args(flags).stdout(Stdio::null()).stderr(log).spawn();
            started.map(Process).map_err(|error| format!("{program}: {error}"))
        };
        let etcd = run(
            "etcd",
            &[
                format!("--data-dir={}", path("etcd")),
                format!("--listen-client-urls={client}"),
                format!("--advertise-client-urls={client}"),
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
                format!("--initial-cluster=default={peer}"),
                "--unsafe-no-fsync=true".to_owned(),
            ],
        )?;
        let issuer = authority();
        write(&dir, "ca.crt", &issuer.pem());
        certify(&dir, &issuer);
        knows(&dir, &TOKENS);
        let flags = vec![
            format!("--etcd-servers={client}"),
            "--bind-address=127.0.0.1".to_owned(),
            // Where there is no default route it does not find one itself. Nobody is there.
            "--advertise-address=192.0.2.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--tls-cert-file={}", path("tls.crt")),
            format!("--tls-private-key-file={}", path("tls.key")),
            format!("--token-auth-file={}", path("tokens.csv")),
            "--authorization-mode=RBAC".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", path("sa.key")),
            format!("--service-account-signing-key-file={}", path("sa.key")),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        ];
        let server = run("kube-apiserver", &flags)?;
        let kubeconfig = write(&dir, "bootstrap.kubeconfig", &kubeconfig(port, TOKENS[0]).to_string());
        write(&dir, "token", TOKENS[0]);
        let of_a_pod = write(&dir, "pod.kubeconfig", &of_a_pod(port, &dir).to_string());
        let (admin, program) = (admin(&kubeconfig).await, programs.join("kube-apiserver"));
        let site = Self { admin, kubeconfig, of_a_pod, port, issuer, server, program, flags, _etcd: etcd, dir };
        site.wait_ready().await;
        site.install().await;
        Ok(site)
    }

    async fn wait_ready(&self) {
        until("the API server is ready", async || {
            let request = http::Request::get("/readyz").body(Vec::new()).expect("a request");
            self.admin.request_text(request).await.map_err(|error| error.to_string())
        })
        .await;
    }

    /// The pods' token is renewed, as kubelet does it: before the earlier one ends.
    pub fn renew_token(&self) {
        write(&self.dir, "token", TOKENS[1]);
    }

    /// The API server is started anew, with another certificate of the same authority, and knows the earlier token no more.
    pub async fn renew_certificates(&mut self) {
        self.server.0.kill().and_then(|()| self.server.0.wait()).expect("a child can be ended");
        certify(&self.dir, &self.issuer);
        knows(&self.dir, &TOKENS[1..]);
        write(&self.dir, "bootstrap.kubeconfig", &kubeconfig(self.port, TOKENS[1]).to_string());
        let log = File::create(self.dir.path().join("kube-apiserver-again.log")).expect("a log");
        let started = Command::new(&self.program).args(&self.flags).stdout(Stdio::null()).stderr(log).spawn();
        self.server = Process(started.expect("it was started before"));
        self.wait_ready().await;
    }

    /// Applies objects as administrator.
    pub async fn apply(&self, objects: &[Value]) {
        for value in objects {
            let object: DynamicObject = serde_json::from_value(value.clone()).expect("an object");
            let types = object.types.clone().expect("a kind");
            let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
            let plural = format!("{}s", types.kind.to_ascii_lowercase());
            let resource = ApiResource::from_gvk_with_plural(
                &kube::api::GroupVersionKind::gvk(group, version, &types.kind),
                &plural,
            );
            let api: Api<DynamicObject> = match object.namespace() {
                Some(namespace) => Api::namespaced_with(self.admin.clone(), &namespace, &resource),
                None => Api::all_with(self.admin.clone(), &resource),
            };
            let name = object.name_any();
            // A new kind is served a moment after its definition is there.
            until(&format!("{} {name} is applied", types.kind), async || {
                let applied = api.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(value)).await;
                applied.map_err(|error| error.to_string())
            })
            .await;
        }
    }

    async fn install(&self) {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.admin.clone());
        for definition in api::crds::crds() {
            let create = kube::api::PostParams::default();
            definitions.create(&create, &definition).await.expect("a definition is created");
        }
        let rule = |group: &str, resources: &[&str], names: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "resourceNames": names, "verbs": verbs});
        let attachments = ["diskattachments", "nicattachments"];
        self.apply(&[
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": "registration"},
                "rules": [
                    rule("metalplane.io", &["dpus"], &[], &["create", "get"]),
                    rule("", &["serviceaccounts/token"], &["agent"], &["create"])]}),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": "registration"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "registration"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": BOOTSTRAP}]}),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": "agent"},
                "rules": [
                    rule("metalplane.io", &attachments, &[], &["get", "list", "watch", "patch"]),
                    rule("metalplane.io", &attachments.map(|r| format!("{r}/status")).each_ref().map(String::as_str),
                        &[], &["patch"]),
                    rule("", &["secrets"], &[], &["get"]),
                    rule("coordination.k8s.io", &["leases"], &[], &["create", "get", "patch"])]}),
        ])
        .await;
    }

    /// What the controller does for an approved Dpu.
    pub async fn approve(&self, dpu: &str, namespace: &str) {
        let role = format!("metalplane-dpu-{dpu}");
        let account = json!([{"kind": "ServiceAccount", "name": "agent", "namespace": namespace}]);
        let binding = |name: &str, role: &str| {
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}, "subjects": account,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}})
        };
        let (mut here, mut own) = (binding("agent", "agent"), binding(&role, &role));
        here["kind"] = json!("RoleBinding");
        here["metadata"]["namespace"] = json!(namespace);
        own["kind"] = json!("ClusterRoleBinding");
        self.apply(&[
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "agent", "namespace": namespace}}),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": role},
                "rules": [
                    {"apiGroups": ["metalplane.io"], "resources": ["dpus"], "resourceNames": [dpu],
                        "verbs": ["get", "list", "watch"]},
                    {"apiGroups": ["metalplane.io"], "resources": ["dpus/status"], "resourceNames": [dpu],
                        "verbs": ["patch"]}]}),
            here,
            own,
        ])
        .await;
        let dpus: Api<api::Dpu> = Api::all(self.admin.clone());
        let merge = PatchParams::default();
        dpus.patch(dpu, &merge, &Patch::Merge(json!({"spec": {"approved": true}}))).await.expect("approve");
        let status = json!({"status": {"namespace": namespace}});
        dpus.patch_status(dpu, &merge, &Patch::Merge(status)).await.expect("name the namespace");
    }
}

fn write(dir: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, text).unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
    path
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority")
}

/// A certificate and key that are other ones each time.
fn certify(dir: &TempDir, issuer: &CertifiedIssuer<'static, KeyPair>) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("parameters");
    write(dir, "tls.crt", &params.signed_by(&key, issuer).expect("a certificate").pem());
    write(dir, "tls.key", &key.serialize_pem());
}

/// By whom the API server is asked: an administrator, and the pods by these tokens.
fn knows(dir: &TempDir, tokens: &[&str]) {
    let pods: String = tokens.iter().map(|token| format!("{token},{BOOTSTRAP},2\n")).collect();
    write(dir, "tokens.csv", &format!("admin,admin,1,system:masters\n{pods}"));
}

fn of_a_pod(port: u16, dir: &TempDir) -> Value {
    let file = |name: &str| dir.path().join(name);
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster":
            {"server": format!("https://127.0.0.1:{port}"), "certificate-authority": file("ca.crt")}}],
        "users": [{"name": "pod", "user": {"tokenFile": file("token")}}],
        "contexts": [{"name": "pod", "context": {"cluster": "test", "user": "pod"}}],
        "current-context": "pod",
    })
}

fn kubeconfig(port: u16, token: &str) -> Value {
    let user = |name: &str, token: &str| json!({"name": name, "user": {"token": token}});
    let context = |name: &str| json!({"name": name, "context": {"cluster": "test", "user": name}});
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster":
            {"server": format!("https://127.0.0.1:{port}"), "insecure-skip-tls-verify": true}}],
        "users": [user("admin", "admin"), user("bootstrap", token)],
        "contexts": [context("admin"), context("bootstrap")],
        "current-context": "bootstrap",
    })
}

async fn admin(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("our own kubeconfig");
    let options = KubeConfigOptions { context: Some("admin".to_owned()), ..KubeConfigOptions::default() };
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("our own kubeconfig");
    config.auth_info = AuthInfo { token: Some("admin".to_owned().into()), ..AuthInfo::default() };
    Client::try_from(config).expect("a client")
}
