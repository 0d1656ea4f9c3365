//! Controller and agents as plain processes of the sandbox, with the identities that their pods would have.
//!
//! They may be those of another architecture: the variable EMULATED names the folder that has them, EMULATOR what runs them.

use super::{INVENTORY_NAMESPACE, SYSTEM_NAMESPACE, Site, program};
use anyhow::Result;
use sandbox::supervisor::process::ProcessSpec;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

impl Site {
    pub(super) async fn start_processes(&self) -> Result<()> {
        let ovn = &self.sandbox.ready().ovn;
        let mut process = self.controller(start_of("controller")?).await?;
        process.argv.extend([
            format!("--ovn-nb={}", ovn.north_bound),
            format!("--ovn-sb={}", ovn.south_bound),
            format!("--ovn-certificate={}", ovn.certificate.display()),
            format!("--ovn-private-key={}", ovn.private_key.display()),
            format!("--ovn-ca-cert={}", ovn.ca_cert.display()),
            "--ovn-server-name=HOST".to_owned(),
            format!("--file-pool=default={}", self.sandbox.ready().pool.display()),
        ]);
        let process = self.ceph.iter().try_fold(process, |process, ceph| ceph.programs(process))?;
        self.sandbox.spawn(&process).await?;
        for node in self.sandbox.ready().nodes.iter().filter(|node| node.dpu) {
            let kubeconfig = self.identity("metalplane-dpu-agent", Some(&node.name)).await?;
            let mut argv = start_of("dpu-agent")?;
            argv.extend([
                format!("--kubeconfig={}", kubeconfig.display()),
                format!("--node-name={}", node.name),
                "--boot-id-file=/run/metalplane/boot-id".to_owned(),
                "--kubelet-dir=/var/lib/kubelet".to_owned(),
                format!("--file-pool=default={}", self.sandbox.ready().pool.display()),
            ]);
            let mut process = ProcessSpec::new(format!("{}/dpu-agent", node.name), argv).enter(&node.name);
            if let Some(ceph) = &self.ceph {
                self.sandbox.spawn(&ceph.daemon(&node.name)).await?;
                process = ceph.agent(process)?;
            }
            self.sandbox.spawn(&process).await?;
        }
        Ok(())
    }

    /// The controller as a process of the control plane's network, with its own account; `program`: the words that start it. It is told of
    /// no OVN and of no storage yet.
    pub async fn controller(&self, program: Vec<String>) -> Result<ProcessSpec> {
        let kubeconfig = self.identity("metalplane-controller", None).await?;
        let arguments = [
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--namespace={SYSTEM_NAMESPACE}"),
            format!("--inventory-namespace={INVENTORY_NAMESPACE}"),
            format!("--holder-image={}", sandbox::cluster::images::PAUSE),
        ];
        Ok(ProcessSpec::new("control-plane/controller", program.into_iter().chain(arguments)).enter("cp"))
    }

    /// A kubeconfig with a token of that ServiceAccount; bound to a node, it carries the node's name as a pod's does.
    async fn identity(&self, account: &str, node: Option<&str>) -> Result<PathBuf> {
        let mut args = vec!["create", "token", account, "-n", SYSTEM_NAMESPACE, "--duration=24h"];
        if let Some(node) = node {
            args.extend(["--bound-object-kind", "Node", "--bound-object-name", node]);
        }
        let token = self.kubectl(&args).await?;
        let admin = std::fs::read_to_string(self.sandbox.admin_kubeconfig())?;
        let field =
            |name: &str| admin.split(&format!("{name}: ")).nth(1).and_then(|rest| rest.lines().next()).unwrap_or("");
        let authority = match field("certificate-authority-data") {
            "" => format!("certificate-authority: {}", field("certificate-authority")),
            data => format!("certificate-authority-data: {data}"),
        };
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{{name: x, cluster: {{server: {}, {authority}}}}}]\n\
             users: [{{name: x, user: {{token: {}}}}}]\ncontexts: [{{name: x, context: {{cluster: x, user: x}}}}]\n",
            field("server"),
            token.trim()
        );
        let file = format!("{account}{}.kubeconfig", node.map(|n| format!("-{n}")).unwrap_or_default());
        let path = self.sandbox.layout().dir.join(file);
        write_secret(&path, &text)?;
        Ok(path)
    }
}

/// How a program of ours is started.
fn start_of(name: &str) -> Result<Vec<String>> {
    let path = |variable| std::env::var_os(variable).map(PathBuf::from);
    let words = match (path("EMULATOR"), path("EMULATED")) {
        (Some(emulator), Some(folder)) => vec![emulator, folder.join(name)],
        _ => vec![program(name)?],
    };
    Ok(words.iter().map(|word| word.display().to_string()).collect())
}

fn write_secret(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(())
}
