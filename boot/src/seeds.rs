//! What machines that are installed are told about themselves: Secrets of a namespace that holds nothing else, each named by its
//! installation. They are read when they are asked for: a thousand of them are not kept in memory.

use anyhow::{Context, Result};
use api::labels;
use api::tinkerbell::Hardware;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use planner::meta::label;
use planner::metadata::hardware::{self, Files};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// cloud-init walks a tree of some thirty paths. What an installation was given does not change.
const KEPT: Duration = Duration::from_secs(30);
/// A Secret has a mebibyte at most.
const MOST: usize = 32;

/// By the name of the Secret and the UID of its machine, until when it counts; `None`: there was none.
type Read = BTreeMap<(String, String), (Instant, Option<Arc<Files>>)>;

pub struct Seeds {
    api: Api<Secret>,
    read: Mutex<Read>,
}

impl Seeds {
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), read: Mutex::default() }
    }

    /// `None`: nothing was written for who has this server now.
    pub async fn of(&self, hardware: &Hardware) -> Result<Option<Arc<Files>>> {
        let Some((name, machine)) = hardware::secret(hardware) else { return Ok(None) };
        let key = (name, machine.to_owned());
        if let Some((_, known)) = self.kept().get(&key) {
            return Ok(known.clone());
        }
        let name = &key.0;
        let there = self.api.get_opt(name).await.with_context(|| format!("get Secret '{name}'"))?;
        let own = there.filter(|secret| label(&secret.metadata, labels::MACHINE_UID) == Some(machine));
        let files = |secret: Secret| secret.data.into_iter().flatten().map(|(key, content)| (key, content.0)).collect();
        let files: Option<Arc<Files>> = own.map(files).map(Arc::new);
        let mut kept = self.kept();
        if kept.len() >= MOST {
            kept.pop_first();
        }
        kept.insert(key, (Instant::now() + KEPT, files.clone()));
        Ok(files)
    }

    fn kept(&self) -> MutexGuard<'_, Read> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        read.retain(|_, (until, _)| *until > now);
        read
    }
}
