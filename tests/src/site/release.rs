//! A release, installed from a registry alone, by the words of its own install.md.

use super::{Agents, INVENTORY_NAMESPACE, Site, install, run, until};
use anyhow::{Context, Result, ensure};
use sandbox::Sandbox;
use sandbox::cluster::kubelet::CNI;
use sandbox::handle::Options;
use sandbox::layout::{API_ADDRESS, CONTROL_PLANE};
use sandbox::registry::{self, Registry};
use sandbox::supervisor::process::ProcessSpec;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PORT: u16 = 5000;
/// Where the registry has the images.
const PATH: &str = "metalplane";

impl Site {
    /// Starts a sandbox with a registry that its nodes trust, and does what the release's instructions say. No image of Metalplane is in
    /// any node before.
    pub async fn from_registry(name: &str, options: Options, release: &Path, say: &dyn Fn(&str)) -> Result<Self> {
        say("starting the cluster");
        let sandbox = Sandbox::start(name, options).await?;
        let site = Self { sandbox, helm: install::helm().await?, agents: Agents::DaemonSet, spdk: None, ceph: None };
        say("starting the registry");
        let registry = site.start_registry().await?;
        site.snapshot_definitions().await?;
        say("following install.md");
        site.follow(&release.join("install.md"), &registry).await?;
        site.wait_for_workloads().await?;
        site.rack_servers().await?;
        Ok(site)
    }

    /// As the chart is told of it.
    pub fn registry() -> String {
        format!("{API_ADDRESS}:{PORT}/{PATH}")
    }

    async fn start_registry(&self) -> Result<Registry> {
        let (program, environment) = registry::program().await?;
        let layout = self.sandbox.layout();
        let registry = Registry::prepare(&layout.dir.join("registry"), SocketAddr::from((API_ADDRESS, PORT)))?;
        let argv = std::iter::once(program.display().to_string()).chain(registry.arguments());
        let process = ProcessSpec::new("control-plane/registry", argv).enter(CONTROL_PLANE);
        let process = environment.iter().fold(process, |process, (name, value)| process.env(name, value));
        self.sandbox.spawn(&process).await?;
        for node in &self.sandbox.ready().nodes {
            let inside = registry::HOSTS.trim_start_matches("/var/");
            registry.trusted_by(&layout.node_dir(&node.name).join(inside))?;
        }
        until("the registry listens", Duration::from_secs(60), async || {
            let connect = format!("exec 3<>/dev/tcp/{API_ADDRESS}/{PORT}");
            Ok(self.enter(CONTROL_PLANE, &["bash", "-c", &connect]).await.map(drop).map_err(|error| error.to_string()))
        })
        .await?;
        Ok(registry)
    }

    /// Every command of the instructions, in one shell, where the registry and the API server are; only their examples are this site's.
    async fn follow(&self, instructions: &Path, registry: &Registry) -> Result<()> {
        let text = std::fs::read_to_string(instructions).with_context(|| format!("read {}", instructions.display()))?;
        let script = with_words(&blocks(&text), &self.words(registry)?)?;
        let folder = instructions.parent().context("install.md is in a folder")?;
        let kept = self.sandbox.layout().dir.join("install.sh");
        std::fs::write(&kept, format!("set -eux -o pipefail\ncd '{}'\n{script}", folder.display()))?;
        let mut command = self.sandbox.enter(CONTROL_PLANE);
        let helm = self.helm.parent().context("helm is in a folder")?.display().to_string();
        let kubernetes = self.sandbox.ready().programs.iter().map(|folder| folder.display().to_string());
        let path: Vec<String> = std::iter::once(helm).chain(kubernetes).chain(std::env::var("PATH")).collect();
        command.arg("env").arg(format!("PATH={}", path.join(":"))).env("KUBECONFIG", self.sandbox.admin_kubeconfig());
        // No operator's shell has what a test is given of its package: with it `make push` would build much anew.
        for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME"] {
            command.env_remove(name);
        }
        let log = self.sandbox.layout().dir.join("install.log");
        let script = format!("exec bash '{}' > '{}' 2>&1", kept.display(), log.display());
        let done = run(command, &["bash", "-c", &script], None).await;
        done.with_context(|| {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let last: Vec<&str> = said.lines().rev().take(12).collect();
            format!("install.md: {}", last.into_iter().rev().collect::<Vec<_>>().join("\n"))
        })?;
        Ok(())
    }

    /// The examples of the instructions, and what stands for them here.
    fn words(&self, registry: &Registry) -> Result<Vec<(&'static str, String)>> {
        let programs = self.programs();
        std::fs::create_dir_all(&programs).with_context(|| format!("make {}", programs.display()))?;
        let ready = self.sandbox.ready();
        let (ovn, show) = (&ready.ovn, |file: &Path| file.display().to_string());
        // What a sandbox is, and a site is not.
        let sandbox = format!(
            "agent: {{bootIdFile: /run/metalplane/boot-id}}\ninventory: {{namespace: {INVENTORY_NAMESPACE}}}\n\
             cni: {{enabled: true, chain: true, binDirectory: {CNI}/bin, confDirectory: {CNI}/net.d}}"
        );
        let pool = format!("filePool: {{directory: {}, storageClass: {{isDefault: true}}}}", ready.pool.display());
        Ok(vec![
            ("registry.example:5000/metalplane", Self::registry()),
            ("REGISTRY_USER=user", format!("REGISTRY_USER={}", registry::USER)),
            ("REGISTRY_PASSWORD=password", format!("REGISTRY_PASSWORD={}", registry::PASSWORD)),
            ("/etc/ssl/registry-ca.crt", registry.ca_file.display().to_string()),
            ("/usr/local/bin", programs.display().to_string()),
            ("filePool: {directory: /srv/metalplane}", pool),
            ("/etc/ovn/metalplane.crt", show(&ovn.certificate)),
            ("/etc/ovn/metalplane.key", show(&ovn.private_key)),
            ("/etc/ovn/ca.crt", show(&ovn.ca_cert)),
            ("ssl:192.0.2.1:6641", ovn.north_bound.clone()),
            ("ssl:192.0.2.1:6643", ovn.south_bound.clone()),
            ("tls: {secretName: metalplane-ovn}}", format!("tls: {{secretName: metalplane-ovn}}}}\n{sandbox}")),
        ])
    }

    /// Where the instructions put bmctl.
    pub fn programs(&self) -> PathBuf {
        self.sandbox.layout().dir.join("programs")
    }

    /// The images of all containers in the release's namespace.
    pub async fn running_images(&self) -> Result<Vec<String>> {
        let query = "jsonpath={range .items[*].status.containerStatuses[*]}{.image}{\"\\n\"}{end}";
        let text = self.kubectl(&["get", "pods", "-n", super::SYSTEM_NAMESPACE, "-o", query]).await?;
        Ok(text.lines().map(str::to_owned).collect())
    }
}

/// The fenced blocks, without the indentation of the list that they are in.
fn blocks(text: &str) -> String {
    let mut inside = None;
    let mut commands = String::new();
    for line in text.lines() {
        match (line.trim_start().starts_with("```"), inside) {
            (true, None) => inside = Some(line.len() - line.trim_start().len()),
            (true, Some(_)) => inside = None,
            (false, Some(indentation)) => {
                commands.push_str(line.get(indentation..).unwrap_or_default());
                commands.push('\n');
            }
            (false, None) => {}
        }
    }
    commands
}

/// Each example has to be there, or the instructions say something that nobody has followed.
fn with_words(commands: &str, words: &[(&str, String)]) -> Result<String> {
    let mut script = commands.to_owned();
    for (example, here) in words {
        ensure!(script.contains(example), "install.md has no {example:?} any more: say here what stands for it");
        script = script.replace(example, here);
    }
    Ok(script)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_become_a_script() {
        let text = "1. Yours:\n\n   ```\n   export A=example\n   cat > x <<END\n     b: example\n   END\n   ```\n\n   Or `not this`.\n\n```\nlast\n```\n";
        let commands = blocks(text);
        assert_eq!(commands, "export A=example\ncat > x <<END\n  b: example\nEND\nlast\n");
        let script = with_words(&commands, &[("example", "here".to_owned())]).expect("a script");
        assert!(script.starts_with("export A=here\n") && !script.contains("example"));
        with_words(&commands, &[("absent", String::new())]).expect_err("nothing stands for it");
    }
}
