//! The API server: where it is, and how a client talks to it.

use anyhow::{Context, Result};
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::path::Path;
use version::VERSION;

/// By this kubeconfig, or as the pod's own account. `flag`: what a person writes to give a kubeconfig.
///
/// A client that is made with it never repeats a request by itself: a write that succeeded behind a lost answer would come
/// back as a conflict. Whoever calls looks first.
pub async fn config(kubeconfig: Option<&Path>, flag: &str) -> Result<Config> {
    let mut config = match kubeconfig {
        Some(path) => {
            let kubeconfig =
                Kubeconfig::read_from(path).with_context(|| format!("read the kubeconfig {}", path.display()))?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("use the kubeconfig {}", path.display()))?
        }
        None => Config::incluster().with_context(|| format!("find the API server: give {flag}, or run in a pod"))?,
    };
    config.default_retry = false;
    // By it the API server's audit log and metrics tell apart what ran before and after an upgrade.
    let agent = HeaderValue::from_str(&format!("metalplane/{VERSION}")).context("the version as a User-Agent")?;
    config.headers.push((USER_AGENT, agent));
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const FLAG: &str = "--kubeconfig";

    #[tokio::test]
    async fn no_request_is_repeated_by_itself() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let text = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443"}}], "users": [{"name": "u", "user": {}}]}"#;
        file.write_all(text.as_bytes()).expect("written");
        let config = config(Some(file.path()), FLAG).await.expect("a config");
        assert_eq!(config.cluster_url.host(), Some("10.0.0.1"));
        assert!(!config.default_retry);
        let agent = config.headers.iter().find(|(name, _)| name == USER_AGENT).expect("a User-Agent");
        assert_eq!(agent.1, format!("metalplane/{VERSION}"));
    }

    #[tokio::test]
    async fn an_error_names_the_file_or_the_flag() {
        let missing = config(Some(Path::new("/nowhere/kubeconfig")), FLAG).await.expect_err("there is none");
        assert!(missing.to_string().contains("/nowhere/kubeconfig"), "{missing}");
        let outside = config(None, FLAG).await.expect_err("this is no pod");
        assert!(outside.to_string().contains("give --kubeconfig"), "{outside}");
    }
}
