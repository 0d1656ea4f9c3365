//! csi-sanity against the real binary with an lvol pool: on a real SPDK where one is installed, and on a fake one.

mod driver;
mod fixture;
mod judge;
mod storage_node;

use driver::Driver;
use storage_node::Lab;

/// What needs a volume on a node: volumes of an lvol pool go to DPUs.
const NOT_OF_LVOLS: [&str; 8] = [
    "Node Service should (work|be idempotent)",
    "NodePublishVolume with single node",
    "NodeUnpublishVolume should remove target path",
    "NodeGetVolumeStats should fail when volume does not exist",
    "NodeExpandVolume should work",
    "NodeGetVolumeHealth should return health",
    "volume lifecycle should (work|be idempotent)",
    "ControllerPublishVolume should fail when (the node|the volume is already)",
];

#[test]
fn csi_sanity_with_an_lvol_pool() {
    let test = "csi_sanity_with_an_lvol_pool";
    let Some(lab) = Lab::real(test) else { return };
    judged(test, &lab, "lvol");
}

/// The answers without the data.
#[test]
fn csi_sanity_with_an_lvol_pool_on_a_fake() {
    judged("csi_sanity_with_an_lvol_pool_on_a_fake", &Lab::fake(), "lvol-fake");
}

fn judged(test: &str, lab: &Lab, report: &str) {
    let Some(program) = judge::program(test) else { return };
    let pool = format!("--lvol-pool=fast={},lvs0,{}", lab.storage.socket().display(), lab.address);
    let records = format!("--lvol-records={}", lab.records().display());
    let driver = Driver::start_with(lab.folder(), &[&pool, &records]);
    judge::judge(&program, driver, lab.folder(), report, "block", &NOT_OF_LVOLS);
    lab.assert_sound("judged");
}
