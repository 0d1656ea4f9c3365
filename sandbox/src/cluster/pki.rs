//! Keys, certificates and kubeconfigs of the cluster, and of OVN.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

use crate::layout::{API_ADDRESS, API_PORT, API_SERVICE_ADDRESS, Layout, NodeId};

/// Name that the API server's proxy shows to aggregated API servers.
pub const FRONT_PROXY: &str = "front-proxy-client";

/// The authority of OVN's certificates.
pub const OVN_AUTHORITY: &str = "ovn-ca";
/// Of OVN's databases.
pub const OVN_SERVER: &str = "ovn-central";
/// Of Metalplane's controller towards OVN.
pub const OVN_CLIENT: &str = "ovn-metalplane-controller";

/// A certificate authority whose files are `<name>.crt` and `<name>.key`.
struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// Writes everything to the sandbox's `pki` folder. `relay_port` is the loopback port of the caller's kubeconfig.
pub fn write(layout: &Layout, nodes: &[NodeId], relay_port: u16) -> Result<()> {
    let dir = layout.pki();
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))?;
    let cluster = Authority::create(&dir, "ca")?;
    let front_proxy = Authority::create(&dir, "front-proxy-ca")?;
    write_ovn(&dir, nodes)?;

    let addresses: Vec<String> = [API_ADDRESS, API_SERVICE_ADDRESS, Ipv4Addr::LOCALHOST]
        .iter()
        .map(ToString::to_string)
        .chain(["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"].map(str::to_owned))
        .collect();
    cluster.sign(&dir, "apiserver", "kube-apiserver", None, Some(addresses))?;
    cluster.sign(&dir, "apiserver-kubelet-client", "kube-apiserver-kubelet-client", Some("system:masters"), None)?;
    front_proxy.sign(&dir, FRONT_PROXY, FRONT_PROXY, None, None)?;
    let service_accounts = KeyPair::generate()?;
    private(&dir.join("sa.key"), &service_accounts.serialize_pem())?;
    fs::write(dir.join("sa.pub"), service_accounts.public_key_pem())?;

    let inside = format!("https://{API_ADDRESS}:{API_PORT}");
    let outside = format!("https://127.0.0.1:{relay_port}");
    let admin = cluster.sign(&dir, "admin", "admin", Some("system:masters"), None)?;
    kubeconfig(&layout.admin_kubeconfig(), &layout.name, &inside, &cluster, &admin)?;
    kubeconfig(&layout.kubeconfig(), &layout.name, &outside, &cluster, &admin)?;
    let proxy = cluster.sign(&dir, "kube-proxy", "system:kube-proxy", None, None)?;
    kubeconfig(&dir.join("kube-proxy.kubeconfig"), &layout.name, &inside, &cluster, &proxy)?;
    for node in nodes {
        let user = format!("system:node:{}", node.name);
        let client = cluster.sign(&dir, &format!("{}-client", node.name), &user, Some("system:nodes"), None)?;
        kubeconfig(&kubelet_kubeconfig(layout, node), &layout.name, &inside, &cluster, &client)?;
        let names = vec![node.name.clone(), node.address().to_string()];
        cluster.sign(&dir, &format!("{}-kubelet", node.name), &user, None, Some(names))?;
    }
    Ok(())
}

/// A server's certificate for both databases, a client's for the controller and for each chassis. OVN lets a chassis write what is
/// its own: by the common name, which has to be its system-id (ovn-sb(5), RBAC).
fn write_ovn(dir: &Path, nodes: &[NodeId]) -> Result<()> {
    let authority = Authority::create(dir, OVN_AUTHORITY)?;
    authority.sign(dir, OVN_SERVER, "ovn-central", None, Some(vec![API_ADDRESS.to_string()]))?;
    authority.sign(dir, OVN_CLIENT, "metalplane-controller", None, None)?;
    for node in nodes {
        authority.sign(dir, &chassis(node), &node.name, None, None)?;
    }
    Ok(())
}

/// The files of a node's chassis, without the ending.
pub fn chassis(node: &NodeId) -> String {
    format!("ovn-{}", node.name)
}

pub fn kubelet_kubeconfig(layout: &Layout, node: &NodeId) -> PathBuf {
    layout.pki().join(format!("{}.kubeconfig", node.name))
}

/// A signed certificate and its key, as PEM.
struct Signed {
    certificate: String,
    key: String,
}

impl Authority {
    fn create(dir: &Path, name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, format!("sandbox-{name}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        fs::write(dir.join(format!("{name}.crt")), &certificate)?;
        private(&dir.join(format!("{name}.key")), &key.serialize_pem())?;
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// A server's certificate when it has `names`, else a client's.
    fn sign(
        &self,
        dir: &Path,
        file: &str,
        common_name: &str,
        organisation: Option<&str>,
        names: Option<Vec<String>>,
    ) -> Result<Signed> {
        let usage =
            if names.is_some() { ExtendedKeyUsagePurpose::ServerAuth } else { ExtendedKeyUsagePurpose::ClientAuth };
        let mut params = CertificateParams::new(names.unwrap_or_default())?;
        // The default has a common name of its own.
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        if let Some(organisation) = organisation {
            params.distinguished_name.push(DnType::OrganizationName, organisation);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        fs::write(dir.join(format!("{file}.crt")), &certificate)?;
        private(&dir.join(format!("{file}.key")), &key.serialize_pem())?;
        Ok(Signed { certificate, key: key.serialize_pem() })
    }
}

fn kubeconfig(path: &Path, sandbox: &str, server: &str, authority: &Authority, user: &Signed) -> Result<()> {
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: {sandbox}\n\
         clusters:\n- name: {sandbox}\n  cluster:\n    server: {server}\n    certificate-authority-data: {}\n\
         users:\n- name: {sandbox}\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\n\
         contexts:\n- name: {sandbox}\n  context:\n    cluster: {sandbox}\n    user: {sandbox}\n",
        encode(&authority.certificate),
        encode(&user.certificate),
        encode(&user.key),
    );
    private(path, &text)
}

fn private(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o600)))
        .with_context(|| format!("cannot write {}", path.display()))
}
