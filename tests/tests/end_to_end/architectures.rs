//! An image that has nothing for a node's architecture: what kubelet says of it is what docs/operator/registry.md tells an operator to look for.

use super::on_servers;
use crate::machine::SOON;
use anyhow::{Context, Result};
use sandbox::architecture::Architecture;
use sandbox::oci::{Description, write_images};
use sandbox::registry;
use sandbox::supervisor::process::ProcessSpec;
use std::fs;
use std::path::PathBuf;
use tests::site::{ORDINARY_NODE, Site, tools, until};

/// A registry is asked without TLS at this address alone.
const REGISTRY: &str = "127.0.0.1:5987";
const POD: &str = "elsewhere";
/// containerd's own words.
const SAYS: &str = "no match for platform in manifest";

#[test]
fn a_node_says_that_an_image_lacks_its_architecture() {
    const NAME: &str = "architectures::a_node_says_that_an_image_lacks_its_architecture";
    on_servers(&[1], "architectures", async |site, namespace| {
        let (program, environment) = match registry::program().await {
            Ok(found) => found,
            Err(error) => {
                eprintln!("SKIP {NAME}: no registry: {error:#}");
                return Ok(());
            }
        };
        let folder = site.sandbox.layout().dir.join("elsewhere");
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        let config = folder.join("registry.yml");
        let text = format!(
            "version: 0.1\nlog: {{level: warn}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \"{REGISTRY}\"}}\n",
            folder.join("images").display()
        );
        fs::write(&config, text).with_context(|| format!("write {}", config.display()))?;
        let process = format!("{ORDINARY_NODE}/registry");
        let words = [program.display().to_string(), "serve".to_owned(), config.display().to_string()];
        let spec = ProcessSpec::new(process.clone(), words).enter(ORDINARY_NODE);
        let spec = environment.into_iter().fold(spec, |spec, (name, value)| spec.env(&name, value));
        site.sandbox.spawn(&spec).await?;
        let result = refused(site, namespace, folder.join("elsewhere.tar")).await;
        site.sandbox.stop_process(&process).await?;
        result
    });
}

async fn refused(site: &Site, namespace: &str, tar: PathBuf) -> Result<()> {
    let here = Architecture::here();
    let other =
        Architecture::ALL.into_iter().find(|other| *other != here).context("there is one architecture alone")?;
    let reference = format!("{REGISTRY}/{POD}:1");
    let program = std::env::current_exe().context("find this program")?;
    // What is in it is never read: the node takes nothing of it.
    let files = [(program.as_path(), "/program", 0o755)];
    write_images(&tar, Description { reference: &reference, ..Description::default() }, &[(other, &files)])?;
    push(site, &reference, &tar.display().to_string()).await?;
    let limit = format!("--timeout={}s", SOON.as_secs());
    // A pod is refused before its namespace has that.
    site.kubectl(&["wait", "--for=create", "serviceaccount/default", "-n", namespace, &limit]).await?;
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {POD}}}\nspec:\n  nodeName: {ORDINARY_NODE}\n  terminationGracePeriodSeconds: 0\n  \
         containers:\n  - {{name: x, image: \"{reference}\", imagePullPolicy: Always}}\n"
    );
    site.apply_in(namespace, &pod).await?;
    let of_pod = format!("involvedObject.name={POD},reason=Failed");
    let words = ["get", "events", "-n", namespace, "--field-selector", &of_pod, "-o", "jsonpath={.items[*].message}"];
    until("kubelet says that the image has nothing for the node", SOON, async || {
        let said = site.kubectl(&words).await?;
        Ok(if said.contains(SAYS) { Ok(()) } else { Err(said) })
    })
    .await?;
    site.kubectl(&["delete", "pod", POD, "-n", namespace, &limit]).await.map(drop)
}

/// By the node's own containerd, in a namespace of containerd's that kubelet does not look into. The registry may still be starting.
async fn push(site: &Site, reference: &str, tar: &str) -> Result<()> {
    let ctr = tools("containerd").await?.join("ctr").display().to_string();
    let images = [ctr.as_str(), "--namespace", POD, "images"];
    let import = [&images[..], &["import", "--no-unpack", "--all-platforms", tar]].concat();
    site.enter(ORDINARY_NODE, &import).await?;
    let push = [&images[..], &["push", "--plain-http", reference]].concat();
    until("the image is in the registry", SOON, async || {
        Ok(site.enter(ORDINARY_NODE, &push).await.map(drop).map_err(|error| format!("{error:#}")))
    })
    .await?;
    site.enter(ORDINARY_NODE, &[&images[..], &["rm", reference]].concat()).await.map(drop)
}
