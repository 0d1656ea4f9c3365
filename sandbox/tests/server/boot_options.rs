//! BMCs in the ways of several vendors, read by the shipped driver, judged by the planner's rules: the option of the DPU's disk,
//! or the right refusal; and the order in force after a POST.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::conforms::Bench;
use crate::support::{missing_for_boot, one_at_a_time, skip};
use planner::boot_option::{Choice, Own, Refusal, Rule, choose};
use planner::host::{BootChange, Lack, Post, PowerAction};
use ports::conformance::{Sleep, bmc};
use ports::{Bmc, ErrorClass};
use serde_json::json;

const SERIAL: &str = "MP0V3CXK1T9H2Q5R7W8Y";
const EUI64: [u8; 8] = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77];
/// As most firmware prints it.
const PRINTED: &str = "77-66-55-44-33-22-11-02";
const ZEROS: &str = "00-00-00-00-00-00-00-00";
const SLOT: &str = "Boot0001";

fn start(personality: &str, eui64: &str) -> Bench {
    let disk = json!({ "serial": SERIAL, "eui64": eui64 });
    Bench::start(personality, |folder| {
        let local = folder.join("local.raw");
        std::fs::File::create(&local).and_then(|file| file.set_len(1 << 20)).expect("make a local disk");
        let dpu = json!({ "supervisorSocket": folder.join("none.sock"), "name": "dpu-t" });
        json!({ "bootDisk": disk, "localDisk": local, "dpu": dpu })
    })
}

/// What the controller knows of a DPU in such a server.
fn own() -> Own {
    Own {
        serial: Some(SERIAL.to_owned()),
        eui64: Some(EUI64),
        nsid: 1,
        macs: vec![[0x94, 0x6d, 0xae, 0x91, 0xfb, 0x22]],
        pci_address: Some((38, 0, 2)),
        learnt: None,
    }
}

/// By which rule the option of the DPU's disk is found; `None`: it is not listed.
async fn judge(personality: &str, eui64: &str, expected: Option<Rule>) {
    let bench = start(personality, eui64);
    let seen = bench.bmc().observe().await.expect("observe");
    match (choose(None, &own(), &seen.boot.options), expected) {
        (Ok(Choice::Option { reference, rule, .. }), Some(expected)) => {
            assert_eq!((reference.as_str(), rule), (SLOT, expected), "{personality}");
        }
        (Err(Refusal::NotListed), None) => {}
        other => panic!("{personality}: {other:?} of {:?}", seen.boot.options),
    }
}

macro_rules! personalities {
    ($($test:ident $name:literal $eui64:ident $expected:expr;)*) => {
        $(
            #[tokio::test]
            async fn $test() {
                judge($name, $eui64, $expected).await;
            }
        )*

        #[test]
        fn every_personality_has_its_test() {
            let tested = BTreeSet::from([$($name),*]);
            assert_eq!(tested, sandbox::server::personality::ALL.iter().map(|kind| kind.name).collect());
        }
    };
}

personalities! {
    standby "standby" ZEROS Some(Rule::Serial);
    shared_power "shared-power" ZEROS None;
    forgets_overrides "forgets-overrides" ZEROS Some(Rule::Serial);
    local_disk "local-disk" ZEROS Some(Rule::Serial);
    without_a_dpu "bare" ZEROS None;
    dell "dell" PRINTED Some(Rule::Eui64);
    dell_without_an_eui64 "dell" ZEROS None;
    hpe "hpe" ZEROS Some(Rule::Serial);
    edgeline "edgeline" ZEROS None;
    lenovo "lenovo" ZEROS None;
    supermicro "supermicro" ZEROS Some(Rule::PciAddress);
    dgx "dgx" ZEROS Some(Rule::SiblingOfNic);
    gb200 "gb200" ZEROS Some(Rule::Serial);
    openbmc "openbmc" ZEROS None;
}

#[tokio::test]
async fn what_a_vendors_bmc_lacks_is_told() {
    for (personality, lacks) in [
        ("supermicro", vec![Lack::BootOrder]),
        ("openbmc", vec![Lack::BootOptions, Lack::BootOrder, Lack::VirtualMedia]),
    ] {
        let bench = start(personality, ZEROS);
        let bmc = bench.bmc();
        let seen = bmc.observe().await.expect("observe");
        assert_eq!(seen.lacks, BTreeSet::from_iter(lacks), "{personality}");
        let first = BootChange::First { reference: SLOT.to_owned() };
        let refused = bmc.configure_boot(&first).await.expect_err("there is no order");
        assert_eq!(refused.class, ErrorClass::Unsupported, "{personality}: {refused}");
    }
}

/// Where an order is pending until POST, or has to name the version that it rests on.
#[tokio::test]
async fn vendors_bmcs_conform() {
    let _turn = one_at_a_time();
    if let Some(reason) = missing_for_boot() {
        return skip("vendors_bmcs_conform", &reason);
    }
    for personality in ["dell", "dgx", "gb200"] {
        let mut bench = start(personality, ZEROS);
        bench.order_is_pending = true;
        bmc::run(&bench).await;
    }
}

#[tokio::test]
async fn what_is_refused_in_post_is_taken_later() {
    let _turn = one_at_a_time();
    if let Some(reason) = missing_for_boot() {
        return skip("what_is_refused_in_post_is_taken_later", &reason);
    }
    let bench = start("hpe", ZEROS);
    let bmc = bench.bmc();
    // What is as it shall be is not asked for.
    let last = bmc.observe().await.expect("observe").boot.order.pop().expect("an order");
    bmc.power(PowerAction::On).await.expect("power on");
    for _ in 0..600 {
        if bmc.observe().await.expect("observe").post == Post::Running {
            break;
        }
        bench.sleep(Duration::from_millis(100)).await;
    }
    let first = BootChange::First { reference: last.clone() };
    let refused = bmc.configure_boot(&first).await.expect_err("the firmware is in its POST");
    assert_eq!(refused.class, ErrorClass::Busy, "{refused}");
    for _ in 0..600 {
        match bmc.configure_boot(&first).await {
            Ok(()) => break,
            Err(e) => assert_eq!(e.class, ErrorClass::Busy, "{e}"),
        }
        bench.sleep(Duration::from_millis(100)).await;
    }
    let seen = bmc.observe().await.expect("observe");
    assert_eq!((seen.boot.order.first(), seen.post), (Some(&last), Post::Done));
}
