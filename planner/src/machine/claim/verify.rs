//! Before a claim: the server is the one that the DPU sits in.

use crate::identity::{self, Identity};
use crate::machine::observed::DpuSeen;
use crate::reason::{Blocked, Reason, Waiting};
use api::conditions::{self, HOST_VERIFIED};

/// What the controller found out about the DPU's server, for this spec.
pub(super) fn claimable(dpu: &DpuSeen) -> Result<(), Reason> {
    if identity::expected(&dpu.dpu).is_none() {
        return Ok(());
    }
    let dpu_name = dpu.name().to_owned();
    if let Identity::Differs(message) = identity::check(&dpu.dpu, None) {
        return Err(Blocked::HardwareMismatch { dpu: dpu_name, message }.into());
    }
    let said = dpu.dpu.status.as_ref().and_then(|status| conditions::get(&status.conditions, HOST_VERIFIED));
    let said = said.filter(|said| said.observed_generation == dpu.dpu.metadata.generation);
    match said.map(|said| (said.status.as_str(), said.reason.as_str(), said.message.clone())) {
        Some(("True", ..)) | Some((_, crate::dpu::NOT_REPORTED, _)) => Ok(()),
        Some(("False", _, message)) => Err(Blocked::HardwareMismatch { dpu: dpu_name, message }.into()),
        Some((_, _, message)) => Err(Waiting::DpuNotVerified { dpu: dpu_name, message }.into()),
        None => {
            let message = "the controller has not looked at it since it was changed".to_owned();
            Err(Waiting::DpuNotVerified { dpu: dpu_name, message }.into())
        }
    }
}
