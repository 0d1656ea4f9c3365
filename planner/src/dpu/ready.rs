//! Why a Dpu cannot be used yet, as it says itself.

use crate::observed::DpuSeen;
use crate::reason::{Reason, Waiting};
use api::conditions;

pub(crate) fn not_ready(dpu: &DpuSeen) -> Reason {
    let conditions = dpu.dpu.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let message = match conditions::get(conditions, conditions::READY) {
        Some(ready) => format!("{}: {}", ready.reason, ready.message),
        None => "its agent has not reported yet".to_owned(),
    };
    Waiting::DpuNotReady { dpu: dpu.name().to_owned(), message }.into()
}
