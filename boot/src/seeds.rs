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
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// cloud-init walks a tree of some thirty paths. What an installation was given does not change.
const KEPT: Duration = Duration::from_secs(30);
/// A Secret has a mebibyte at most.
const MOST: usize = 32;

pub struct Seeds {
    api: Api<Secret>,
    read: Mutex<BTreeMap<String, (Instant, Arc<Files>)>>,
}

impl Seeds {
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), read: Mutex::default() }
    }

    /// `None`: nothing was written for who has this server now.
    pub async fn of(&self, hardware: &Hardware) -> Result<Option<Arc<Files>>> {
        let Some((name, machine)) = hardware::secret(hardware) else { return Ok(None) };
        if let Some((_, known)) = self.kept().get(&name) {
            return Ok(Some(known.clone()));
        }
        let there = self.api.get_opt(&name).await.with_context(|| format!("get Secret '{name}'"))?;
        let Some(secret) = there.filter(|secret| label(&secret.metadata, labels::MACHINE_UID) == Some(machine)) else {
            return Ok(None);
        };
        let files = secret.data.unwrap_or_default().into_iter().map(|(key, content)| (key, content.0)).collect();
        let files: Arc<Files> = Arc::new(files);
        let mut kept = self.kept();
        if kept.len() >= MOST {
            kept.pop_first();
        }
        kept.insert(name, (Instant::now() + KEPT, files.clone()));
        Ok(Some(files))
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, (Instant, Arc<Files>)>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        read.retain(|_, (until, _)| *until > now);
        read
    }
}
