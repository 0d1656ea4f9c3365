//! The node plug-in of other people's CSI driver, as kubelet asks it, and how it misbehaves.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Manners {
    #[default]
    Good,
    /// Takes so long for everything.
    Slow(Duration),
    /// Dies of every call, so many times: nobody hears whether it was done.
    Crashes(u32),
    /// Refuses, so many times, with errors that mean something else.
    WrongErrors(u32),
    /// Does it, and says so again later, when it may not be true any more.
    Twice,
}

/// What kubelet makes of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// Nothing has come yet.
    None,
    /// kubelet tells it in an Event, and asks again.
    Failed(String),
}

/// What was asked so far, by the pod and the call.
#[derive(Default)]
pub struct Driver {
    manners: Mutex<Manners>,
    asked: Mutex<BTreeMap<(String, Call), (Instant, u32)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// NodeStage and NodePublish.
    Map,
    /// NodeUnpublish and NodeUnstage.
    Unmap,
}

impl Driver {
    pub fn behave(&self, manners: Manners) {
        *self.manners.lock().unwrap_or_else(PoisonError::into_inner) = manners;
    }

    pub fn manners(&self) -> Manners {
        *self.manners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One call for a pod's volume.
    pub fn ask(&self, pod_uid: &str, call: Call) -> Answer {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, times) = asked.entry((pod_uid.to_owned(), call)).or_insert_with(|| (Instant::now(), 0));
        *times += 1;
        let wrong = ["OutOfRange", "AlreadyExists", "InvalidArgument", "PermissionDenied"];
        match self.manners() {
            Manners::Slow(takes) if since.elapsed() < takes => Answer::None,
            Manners::Crashes(all) if *times <= all => {
                Answer::Failed("rpc error: code = Unavailable desc = error reading from server: EOF".to_owned())
            }
            Manners::WrongErrors(all) if *times <= all => {
                let code = wrong[*times as usize % wrong.len()];
                Answer::Failed(format!("rpc error: code = {code} desc = no such thing"))
            }
            _ => Answer::Done,
        }
    }
}
