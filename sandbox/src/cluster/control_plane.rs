//! etcd, the API server, the controllers and the scheduler, in the control plane's network namespace.

use std::net::SocketAddr;

use anyhow::Result;

use crate::cluster::Site;
use crate::cluster::pki::FRONT_PROXY;
use crate::layout::{API_ADDRESS, API_PORT, CONTROL_PLANE, SERVICE_CIDR};
use crate::supervisor::process::ProcessSpec;

pub const ETCD: &str = "control-plane/etcd";
pub const API_SERVER: &str = "control-plane/kube-apiserver";
pub const CONTROLLERS: &str = "control-plane/kube-controller-manager";
pub const SCHEDULER: &str = "control-plane/kube-scheduler";

/// Starts everything and waits until the API server serves.
pub async fn start(site: &Site) -> Result<()> {
    site.table.start(etcd(site))?;
    let client_port = SocketAddr::from(([127, 0, 0, 1], 2379));
    let listens = || async { site.dialer.connect(client_port).await.is_ok() };
    site.table.until(ETCD, "it listens", listens).await?;
    site.table.start(api_server(site))?;
    let api = SocketAddr::from((API_ADDRESS, API_PORT));
    let serves =
        || async { site.dialer.connect(api).await.is_ok() && site.kubectl(["get", "--raw", "/readyz"]).await.is_ok() };
    site.table.until(API_SERVER, "it is ready", serves).await?;
    site.progress.step("API server ready");
    site.table.start(controllers(site))?;
    site.table.start(scheduler(site))?;
    Ok(())
}

/// Before a namespace has its ServiceAccount, a pod is refused there.
pub async fn takes_pods(site: &Site) -> Result<()> {
    let made = || async { site.kubectl(["get", "serviceaccount", "default", "--namespace=default"]).await.is_ok() };
    site.table.until(CONTROLLERS, "it has made the ServiceAccount of the namespace default", made).await
}

fn etcd(site: &Site) -> ProcessSpec {
    let data = site.layout.dir.join("etcd");
    let argv = [
        site.programs.kubernetes_program("etcd"),
        format!("--data-dir={}", data.display()),
        "--listen-client-urls=http://127.0.0.1:2379".into(),
        "--advertise-client-urls=http://127.0.0.1:2379".into(),
        "--listen-peer-urls=http://127.0.0.1:2380".into(),
        "--initial-advertise-peer-urls=http://127.0.0.1:2380".into(),
        "--initial-cluster=default=http://127.0.0.1:2380".into(),
        // The data lives as long as the sandbox: a lost machine loses it anyway.
        "--unsafe-no-fsync=true".into(),
        "--log-level=warn".into(),
    ];
    ProcessSpec::new(ETCD, argv).enter(CONTROL_PLANE)
}

fn api_server(site: &Site) -> ProcessSpec {
    let pki = |name: &str| site.layout.pki().join(name).display().to_string();
    let flags = [
        ("etcd-servers", "http://127.0.0.1:2379".to_owned()),
        ("bind-address", "0.0.0.0".into()),
        ("advertise-address", API_ADDRESS.to_string()),
        ("secure-port", API_PORT.to_string()),
        ("tls-cert-file", pki("apiserver.crt")),
        ("tls-private-key-file", pki("apiserver.key")),
        ("client-ca-file", pki("ca.crt")),
        ("kubelet-client-certificate", pki("apiserver-kubelet-client.crt")),
        ("kubelet-client-key", pki("apiserver-kubelet-client.key")),
        ("kubelet-certificate-authority", pki("ca.crt")),
        ("kubelet-preferred-address-types", "InternalIP".into()),
        ("service-account-issuer", "https://kubernetes.default.svc".into()),
        ("service-account-key-file", pki("sa.pub")),
        ("service-account-signing-key-file", pki("sa.key")),
        ("authorization-mode", "Node,RBAC".into()),
        ("enable-admission-plugins", "NodeRestriction".into()),
        ("service-cluster-ip-range", SERVICE_CIDR.into()),
        ("allow-privileged", "true".into()),
        // Aggregated API servers and webhooks: reached at their pods, as this network has no kube-proxy.
        ("enable-aggregator-routing", "true".into()),
        ("requestheader-client-ca-file", pki("front-proxy-ca.crt")),
        ("requestheader-allowed-names", FRONT_PROXY.into()),
        ("requestheader-extra-headers-prefix", "X-Remote-Extra-".into()),
        ("requestheader-group-headers", "X-Remote-Group".into()),
        ("requestheader-username-headers", "X-Remote-User".into()),
        ("proxy-client-cert-file", pki(&format!("{FRONT_PROXY}.crt"))),
        ("proxy-client-key-file", pki(&format!("{FRONT_PROXY}.key"))),
    ];
    process(site, API_SERVER, &flags)
}

fn controllers(site: &Site) -> ProcessSpec {
    let pki = |name: &str| site.layout.pki().join(name).display().to_string();
    let flags = [
        ("service-account-private-key-file", pki("sa.key")),
        ("root-ca-file", pki("ca.crt")),
        ("cluster-signing-cert-file", pki("ca.crt")),
        ("cluster-signing-key-file", pki("ca.key")),
        // A claim bound by hand would else wait up to 15 s.
        ("pvclaimbinder-sync-period", "1s".to_owned()),
        // A DPU that is off is seen to be off after 16 s, not 50.
        ("node-monitor-period", "2s".into()),
        ("node-monitor-grace-period", "16s".into()),
    ];
    process(site, CONTROLLERS, &[&admin(site)[..], &flags[..]].concat())
}

fn scheduler(site: &Site) -> ProcessSpec {
    process(site, SCHEDULER, &admin(site))
}

fn admin(site: &Site) -> Vec<(&'static str, String)> {
    let kubeconfig = site.layout.admin_kubeconfig().display().to_string();
    let mut flags: Vec<_> = ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"]
        .into_iter()
        .map(|flag| (flag, kubeconfig.clone()))
        .collect();
    flags.push(("bind-address", "127.0.0.1".into()));
    flags.push(("leader-elect", "false".into()));
    flags
}

fn process(site: &Site, name: &str, flags: &[(&str, String)]) -> ProcessSpec {
    let program = name.rsplit('/').next().unwrap_or(name);
    let mut argv = vec![site.programs.kubernetes_program(program)];
    argv.extend(flags.iter().map(|(flag, value)| format!("--{flag}={value}")));
    ProcessSpec::new(name, argv).enter(CONTROL_PLANE)
}
