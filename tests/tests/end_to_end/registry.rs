//! The judge `release`: its installation. A site of its own: nothing of Metalplane is in its nodes before.

use super::machine::{manifest, wait_ready};
use super::{IMAGE, options};
use anyhow::{Context, Result, ensure};
use tests::site::{GuestKind, Site, release};
use tokio::process::Command;

const LONG: &str = "LONG_TESTS";
const NAMESPACE: &str = "default";

#[test]
fn a_release_is_installed_from_a_registry_alone() {
    let test = "registry::a_release_is_installed_from_a_registry_alone";
    let (Some(_), Some(folder)) = (std::env::var_os(LONG), release()) else {
        eprintln!(
            "SKIP {test}: `make judges JUDGE=release` runs it ({LONG}=1, METALPLANE_RELEASE=the folder of a release)"
        );
        return;
    };
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIP {test}: only root can make network namespaces");
        return;
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let began = std::time::Instant::now();
        let say = |text: &str| eprintln!("[{:6.1} s] {text}", began.elapsed().as_secs_f64());
        let mut options = options();
        options.servers.pop();
        options.personalities.clear();
        let site = Site::from_registry("release", options, &folder, &say).await.expect("installed");
        if let Err(error) = boots(&site, &say).await {
            super::tell(&site, NAMESPACE, &error).await;
            panic!("{error:#}");
        }
    });
}

async fn boots(site: &Site, say: &dyn Fn(&str)) -> Result<()> {
    let images = site.running_images().await?;
    let elsewhere: Vec<&String> = images.iter().filter(|image| !image.starts_with(&Site::registry())).collect();
    ensure!(
        !images.is_empty() && elsewhere.is_empty(),
        "of {} images not from the registry: {elsewhere:?}",
        images.len()
    );
    say("importing the golden image");
    site.golden_image(GuestKind::Tiny, None, IMAGE).await?;
    site.apply(&manifest(NAMESPACE, "bm", "10.30.0.7")).await?;
    wait_ready(site, NAMESPACE, "bm").await?;
    say("the machine is Ready");
    let mut bmctl = Command::new(site.programs().join("bmctl"));
    let said = bmctl.arg("--version").output().await.context("start bmctl where install.md put it")?;
    let version = String::from_utf8_lossy(&said.stdout).trim().trim_start_matches("bmctl ").to_owned();
    let agents = site.kubectl(&["get", "dpu", "-o", "jsonpath={.items[*].status.agentVersion}"]).await?;
    let same = agents.split_whitespace().all(|agent| agent == version);
    ensure!(!version.is_empty() && same, "bmctl of the release is {version:?}, agents are {agents:?}");
    site.kubectl(&["delete", "bmm", "bm", "--timeout=240s"]).await.map(drop)
}
