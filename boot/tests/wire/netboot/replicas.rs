//! The boot service of one way in: one process, or two of which one ends in the middle.

use super::Way;
use super::site::Folder;
use super::wire::{self, ApiServer, Running, US};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const SECOND: &str = "10.88.0.2";

pub struct Replicas(Mutex<Vec<Replica>>);

struct Replica {
    log: PathBuf,
    /// `None`: it was ended.
    running: Option<Running>,
}

impl Replicas {
    pub async fn start(way: &Way, api: &ApiServer, folder: &Folder) -> Self {
        let addresses: &[&str] = if way.replicas { &[US, SECOND] } else { &[US] };
        let mut all = Vec::new();
        for (at, own) in addresses.iter().enumerate() {
            let log = folder.file(&format!("boot-{at}.log"));
            let mut arguments = folder.arguments();
            arguments.extend(way.arguments.iter().map(|argument| (*argument).to_owned()));
            arguments.push(format!("--address={}", addresses.join(",")));
            // Both are in one namespace here, and would be on nodes of their own.
            arguments.extend([format!("--own-address={own}"), format!("--probes=127.0.0.1:{}", 7081 + at)]);
            if *own != US {
                let words = ["addr", "add", &format!("{own}/24"), "dev", "br-prov"];
                let done = Command::new("ip").args(words).status().expect("ip starts");
                assert!(done.success(), "{words:?}");
            }
            all.push(Replica { running: Some(wire::boot(&api.kubeconfig, &arguments, own, &log).await), log });
        }
        Self(Mutex::new(all))
    }

    /// What they have said, that of those that were ended first.
    pub fn said(&self) -> String {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (ended, running): (Vec<_>, Vec<_>) = all.iter().partition(|replica| replica.running.is_none());
        let said = |replica: &&Replica| std::fs::read_to_string(&replica.log).unwrap_or_default();
        ended.iter().chain(&running).map(said).collect()
    }

    pub fn ended(&self) -> usize {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|replica| replica.running.is_none()).count()
    }

    /// Ends the one that serves the server its first action, as soon as it has. Whoever follows the server has the time limit.
    pub async fn end_one_of_two(&self) {
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).len() < 2 {
            return std::future::pending().await;
        }
        while !self.end_the_one_that_serves() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        eprintln!("the replica that serves the server is ended");
        std::future::pending().await
    }

    fn end_the_one_that_serves(&self) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let serves = |replica: &&mut Replica| {
            std::fs::read_to_string(&replica.log).is_ok_and(|said| said.contains(" action=\"image\""))
        };
        all.iter_mut().find(serves).map(|serving| serving.running = None).is_some()
    }
}
