//! csi-sanity, the CSI project's own judge, against the real binary on a real XFS, for both access types.

mod driver;
mod fixture;
mod judge;

use driver::Driver;
use fixture::Mounted;

#[test]
fn csi_sanity_with_mounted_volumes() {
    judged("csi_sanity_with_mounted_volumes", "mount");
}

#[test]
fn csi_sanity_with_block_volumes() {
    judged("csi_sanity_with_block_volumes", "block");
}

fn judged(test: &str, access_type: &str) {
    let Some(program) = judge::program(test) else { return };
    let Some(mounted) = Mounted::xfs(test, "40G") else { return };
    let driver = Driver::start(&mounted, &[]);
    judge::judge(&program, driver, mounted.beside(), access_type, access_type, &[]);
}
