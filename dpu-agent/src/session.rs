//! From the bootstrap identity to this DPU's own: register, wait for approval, ask for a token, renew it.
//!
//! The bootstrap identity may create the Dpu that is named after its node and read it; once that is approved it may ask
//! for a token of the ServiceAccount `agent` in that DPU's namespace, bound to the Node. The token is a file, which the
//! client reads again by itself: a renewal that fails changes nothing while the old one lives.

use crate::args::Args;
use crate::beats::Beats;
use crate::clock;
use crate::cluster::{Cluster, bounded};
use crate::heartbeat::{self, AsWhom};
use crate::metrics::Metrics;
use crate::record::write_atomically;
use crate::watch::Desired;
use anyhow::Context;
use api::Dpu;
use api::dpu::{DpuSpec, DpuType};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::config::AuthInfo;
use kube::{Api, Client, Config};
use ports::{ErrorClass, PortError};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

const ACCOUNT: &str = "agent";
const TOKEN_SECONDS: i64 = 3600;
/// Between attempts: somebody has to start the API server, or to approve.
const AGAIN: Duration = Duration::from_secs(1);
/// How often to look whether our Dpu is still there.
const LOOK: Duration = Duration::from_secs(10);
/// The least time between two requests for a token.
const RENEW_PAUSE: Duration = Duration::from_secs(10);

/// Makes a client that reads its token from a file, again and again.
type ClientOfToken = Box<dyn Fn(&Path) -> anyhow::Result<Client> + Send + Sync>;

/// How to reach the API server: as what the agent starts as, and with this DPU's own token.
pub struct Access {
    pub bootstrap: Client,
    pub own: ClientOfToken,
}

impl Access {
    pub async fn from_args(args: &Args) -> anyhow::Result<Self> {
        let config = bootstrap_config(args).await?;
        let bootstrap = Client::try_from(config.clone()).context("the bootstrap identity")?;
        let own = move |token_file: &Path| {
            let mut own = config.clone();
            own.auth_info = AuthInfo { token_file: Some(token_file.display().to_string()), ..AuthInfo::default() };
            Client::try_from(own).context("this DPU's own identity")
        };
        Ok(Self { bootstrap, own: Box::new(own) })
    }
}

/// Never ends by itself. An error is one that trying again cannot mend.
pub(crate) async fn run(
    args: &Args,
    access: Access,
    joined: &watch::Sender<Option<Cluster>>,
    desired: Arc<Desired>,
    (beats, metrics): (&Beats, &Metrics),
) -> anyhow::Result<()> {
    let Access { bootstrap, own } = access;
    let name = &args.node_name;
    loop {
        let Approved { uid, namespace } = approved(&bootstrap, name, args.type_()).await;
        let token_file = args.run_dir.join("token");
        let accounts = Api::namespaced(bootstrap.clone(), &namespace);
        let tokens = Tokens { accounts, node: name, file: &token_file };
        let expiry = tokio::select! {
            biased;
            expiry = tokens.first() => expiry,
            () = is_gone(&bootstrap, name, &uid, &desired) => continue,
        };
        let cluster = Cluster { client: own(&token_file)?, namespace };
        let refused = Notify::new();
        let as_whom = AsWhom { node: name, dpu_uid: &uid, beats };
        let follow = async { tokio::join!(tokens.renew(expiry, &refused), desired.follow(&cluster, name)) };
        tokio::select! {
            biased;
            () = heartbeat::beat(&cluster, as_whom, &refused, joined, metrics) => {}
            _ = follow => {}
            () = is_gone(&bootstrap, name, &uid, &desired) => {
                tracing::warn!(dpu = name, "the Dpu was deleted: what is presented stays; registering again");
            }
        }
        desired.unlist();
        joined.send_replace(None);
    }
}

/// Returns when the Dpu as which we joined is no more. Its identity goes with it, so that is read as who we started as;
/// and only if our own watch does not show it.
async fn is_gone(bootstrap: &Client, name: &str, uid: &str, desired: &Desired) {
    let dpus: Api<Dpu> = Api::all(bootstrap.clone());
    let what = format!("reading Dpu {name}");
    loop {
        tokio::time::sleep(LOOK).await;
        let is_it = |dpu: &Dpu| dpu.metadata.uid.as_deref() == Some(uid);
        if desired.dpu.single().as_ref().is_some_and(is_it) {
            continue;
        }
        if let Ok(there) = bounded(&what, dpus.get_opt(name)).await
            && !there.as_ref().is_some_and(is_it)
        {
            return;
        }
    }
}

async fn bootstrap_config(args: &Args) -> anyhow::Result<Config> {
    let mut config = runtime::cluster::config(args.kubeconfig.as_deref(), "--kubeconfig").await?;
    config.connect_timeout = Some(Duration::from_secs(5));
    Ok(config)
}

/// What an administrator let in.
struct Approved {
    uid: String,
    namespace: String,
}

/// Registers, and waits until an administrator approved and the controller made the namespace.
async fn approved(bootstrap: &Client, name: &str, type_: DpuType) -> Approved {
    let dpus: Api<Dpu> = Api::all(bootstrap.clone());
    let what = format!("registering Dpu {name}");
    let mut silence = Silence::default();
    let ours = Dpu::new(name, DpuSpec { type_, ..DpuSpec::default() });
    loop {
        match bounded(&what, dpus.create(&PostParams::default(), &ours)).await {
            Ok(_) if type_.is_node() => tracing::info!(dpu = name, "registered: an ordinary node"),
            Ok(_) => tracing::info!(dpu = name, "registered: it waits for spec.approved"),
            Err(error) if error.class == ErrorClass::Conflict => {}
            Err(error) => {
                silence.broken_by(&error);
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        }
        match approval(&dpus, name, type_).await {
            Some(approved) => return approved,
            None => tracing::warn!(dpu = name, "the Dpu was deleted: registering again"),
        }
    }
}

/// `None`: the Dpu was deleted. Asked again and again: who may watch Dpus may read those of others.
async fn approval(dpus: &Api<Dpu>, name: &str, type_: DpuType) -> Option<Approved> {
    let what = format!("reading Dpu {name}");
    let mut silence = Silence::default();
    loop {
        match bounded(&what, dpus.get_opt(name)).await {
            Ok(dpu) => {
                let dpu = dpu?;
                if dpu.spec.type_ != type_ {
                    let what = format!("Dpu {name} has another spec.type than {type_:?}: delete that Dpu");
                    silence.broken_by(&PortError::new(ErrorClass::Conflict, what));
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
                let namespace = dpu.status.and_then(|status| status.namespace);
                if let (Some(namespace), Some(uid), true) = (namespace, dpu.metadata.uid, dpu.spec.is_admitted()) {
                    return Some(Approved { uid, namespace });
                }
            }
            Err(error) => silence.broken_by(&error),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Of an attempt that fails each second the log says so after 1, 2, 4, 8… of them.
#[derive(Default)]
struct Silence {
    attempts: u32,
}

impl Silence {
    fn broken_by(&mut self, error: &PortError) {
        self.attempts = self.attempts.saturating_add(1);
        if self.attempts.is_power_of_two() {
            tracing::warn!(%error, attempts = self.attempts, "will try again");
        }
    }
}

/// Tokens of this DPU's own account.
struct Tokens<'a> {
    accounts: Api<ServiceAccount>,
    node: &'a str,
    file: &'a Path,
}

impl Tokens<'_> {
    /// Writes a new token to the file; when it expires.
    async fn request(&self) -> Result<Timestamp, PortError> {
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: Some(TOKEN_SECONDS),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Node".to_owned()),
                    name: Some(self.node.to_owned()),
                    ..BoundObjectReference::default()
                }),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let what = format!("asking for a token of ServiceAccount {ACCOUNT}, bound to Node {}", self.node);
        let params = PostParams::default();
        let asked = self.accounts.create_token_request(ACCOUNT, &params, &request);
        let status = bounded(&what, asked).await?.status.unwrap_or_default();
        let (Some(token), Some(expiry)) = (status.token, status.expiration_timestamp) else {
            return Err(PortError::new(ErrorClass::Invalid, format!("{what}: no token came")));
        };
        write_atomically(self.file, token.as_bytes()).map_err(|error| {
            PortError::new(ErrorClass::Invalid, format!("writing {}: {error}", self.file.display()))
        })?;
        Ok(expiry.0)
    }

    async fn first(&self) -> Timestamp {
        let mut silence = Silence::default();
        loop {
            match self.request().await {
                Ok(expiry) => return expiry,
                Err(error) => silence.broken_by(&error),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Renews for ever: at 80 % of a token's life, or when the API server does not accept it.
    async fn renew(&self, mut expiry: Timestamp, refused: &Notify) {
        loop {
            let life = expiry.duration_since(clock::now()).max(jiff::SignedDuration::ZERO).unsigned_abs();
            tokio::time::sleep(RENEW_PAUSE).await;
            tokio::select! {
                biased;
                () = tokio::time::sleep(life.mul_f64(0.8).saturating_sub(RENEW_PAUSE)) => {}
                () = refused.notified() => tracing::warn!("the API server refuses the token: asking for another"),
            }
            match self.request().await {
                Ok(next) => expiry = next,
                Err(error) => tracing::warn!(%error, "will try again; the old token is used until it expires"),
            }
        }
    }
}
