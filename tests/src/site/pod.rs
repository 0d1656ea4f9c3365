//! Pods of the ordinary node that have a NIC in a Vpc, entered by what our plugin has noted of them.

use super::Site;
use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The site's ordinary node.
pub const ORDINARY_NODE: &str = "node-1";

/// A pod's network namespace.
pub struct Pod {
    /// Its path.
    pub netns: String,
}

impl Site {
    pub async fn pod(&self, namespace: &str, name: &str) -> Result<Pod> {
        let pod = self.get(&["pod", name, "-n", namespace]).await?.context("no pod")?;
        for note in self.pod_notes().await? {
            if note["podUid"] == pod["metadata"]["uid"] {
                let netns = note["netns"].as_str().context("the plugin has noted no namespace")?;
                return Ok(Pod { netns: netns.to_owned() });
            }
        }
        bail!("the plugin has noted nothing of pod {name}")
    }

    /// What the plugin keeps on the ordinary node, one note per sandbox.
    pub async fn pod_notes(&self) -> Result<Vec<Value>> {
        let all = ["sh", "-c", "cat /run/metalplane/cni/*.json 2>/dev/null || true"];
        let text = self.enter(ORDINARY_NODE, &all).await?;
        let notes = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        notes.collect::<Result<_, _>>().context("the plugin's notes")
    }
}

impl Pod {
    /// A command in the pod's network namespace.
    pub async fn enter(&self, site: &Site, args: &[&str]) -> Result<String> {
        let inside = format!("--net={}", self.netns);
        site.enter(ORDINARY_NODE, &[&["nsenter", &inside], args].concat()).await
    }
}
