//! The connection to the API server.

use crate::args::ClusterArgs;
use crate::failure::Failure;
use anyhow::Context;
use api::BareMetalMachine;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::ResourceExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use runtime::version;
use std::time::Duration;

/// What the chart of the same version says; of which commit a program is, makes no difference to what it understands.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// For how long the server may say nothing before it counts as one that does not answer.
pub const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// What the chart installs in every cluster, and labels with its version.
const LABELLED: &str = "metalplane-deletes";

pub struct Cluster {
    pub client: Client,
    pub namespace: String,
    /// It was written: what is of no machine's namespace is looked for in all others else.
    pub is_namespace_given: bool,
    /// What the user called us: `bmctl` or `kubectl bm`.
    pub program: &'static str,
}

impl Cluster {
    pub async fn connect(args: &ClusterArgs, program: &'static str) -> Result<Self, Failure> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let options = KubeConfigOptions { context: args.context.clone(), ..KubeConfigOptions::default() };
        let mut config = match &args.kubeconfig {
            Some(path) if !path.contains(':') => {
                let kubeconfig = Kubeconfig::read_from(path).with_context(|| format!("read kubeconfig '{path}'"))?;
                Config::from_custom_kubeconfig(kubeconfig, &options).await.context("use the kubeconfig")?
            }
            // Several files, as in kubectl's KUBECONFIG: the library merges them itself.
            _ => match Config::from_kubeconfig(&options).await {
                Ok(config) => config,
                Err(error) => Config::incluster().map_err(|_| {
                    Failure::Other(anyhow::anyhow!(
                        "no cluster to talk to: {error}; set KUBECONFIG or give --kubeconfig"
                    ))
                })?,
            },
        };
        // A person waits: rather an error now than minutes of silent retries.
        config.default_retry = false;
        config.connect_timeout = Some(Duration::from_secs(5));
        config.read_timeout = Some(READ_TIMEOUT);
        let namespace = args.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).context("make a client")?;
        Ok(Self { client, namespace, is_namespace_given: args.namespace.is_some(), program })
    }

    pub fn machines(&self) -> Api<BareMetalMachine> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub async fn machine(&self, name: &str) -> Result<BareMetalMachine, Failure> {
        self.machines().get(name).await.map_err(|e| self.failure(e, name))
    }

    pub fn failure(&self, error: kube::Error, machine: &str) -> Failure {
        let object = format!("machine '{machine}' in namespace '{}'", self.namespace);
        let object = if machine.is_empty() { format!("namespace '{}'", self.namespace) } else { object };
        Failure::from_kube(error, &object, self.program)
    }

    pub async fn versions(&self) -> Result<String, Failure> {
        let server = self.client.apiserver_version().await.map_err(|e| self.failure(e, ""))?;
        let installed =
            self.installed().await.unwrap_or_else(|| "unknown (not installed, or not yours to read)".to_owned());
        let lines = [("Client", version::VERSION), ("Metalplane", &installed), ("Kubernetes", &server.git_version)];
        let text = lines.iter().map(|(what, version)| format!("{what} Version: {version}\n")).collect();
        if let Some(skew) = self.skew().await {
            eprintln!("warning: {skew}");
        }
        Ok(text)
    }

    /// The version of Metalplane in the cluster, if it can be told.
    async fn installed(&self) -> Option<String> {
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        let policy = policies.get_metadata_opt(LABELLED).await.ok()??;
        policy.labels().get("app.kubernetes.io/version").cloned()
    }

    /// Said when the server refuses something: a client of another version may ask for what it does not know.
    pub async fn skew(&self) -> Option<String> {
        let installed = self.installed().await.filter(|installed| installed != VERSION)?;
        Some(format!(
            "{} is {VERSION}, Metalplane in the cluster is {installed}: they may not understand each other",
            self.program
        ))
    }
}
