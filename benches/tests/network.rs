//! `bench network` on a small site: what it counts is told, and does not grow with the site.

use benches::args::Network;
use benches::network;
use sandbox::preflight::ovn::VARIABLE as OVN_DIR;

const LONG: &str = "LONG_TESTS";

/// The OVN that is run if it is not the distribution's.
fn another() -> Option<String> {
    std::env::var(OVN_DIR).ok().filter(|folder| !folder.is_empty())
}

#[tokio::test]
async fn a_change_costs_what_it_is_large_and_a_start_with_nothing_to_do_writes_nothing() {
    let name = "a_change_costs_what_it_is_large_and_a_start_with_nothing_to_do_writes_nothing";
    if let Some(folder) = another() {
        eprintln!("SKIP {name}: the distribution's OVN is not measured: {OVN_DIR}={folder} names another");
        return;
    }
    counts(name).await;
}

#[tokio::test]
async fn another_ovn_is_written_as_little() {
    let name = "another_ovn_is_written_as_little";
    if another().is_none() {
        eprintln!("SKIP {name}: another OVN is not measured: {OVN_DIR}=FOLDER");
        return;
    }
    counts(name).await;
}

async fn counts(name: &str) {
    if std::env::var_os(LONG).is_none() {
        eprintln!("SKIP {name}: it takes a minute: `make judges JUDGE=ovn` runs it ({LONG}=1)");
        return;
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (figures, ovn) = network::measure(&Network { vnics: 300, changes: 3 }).await.expect("measured");
    assert!(ovn.starts_with("OVN 2"), "{ovn}");
    let told = |name: &str| figures.get(name).unwrap_or_else(|| panic!("no {name} in {figures:?}"));

    // One transaction for the rows of an object; of rules one more, for the number that chassis tell.
    for (change, transactions) in [("made", 1.0), ("deleted", 1.0), ("rule", 2.0)] {
        for beside in ["", "Small"] {
            let count = told(&format!("{change}Transactions{beside}"));
            assert_eq!((count.min, count.max), (transactions, transactions), "{change}{beside}");
        }
        let [large, small] = ["", "Small"].map(|beside| told(&format!("{change}Bytes{beside}")).p50);
        assert!((large / small - 1.0).abs() < 0.1, "{change}: {large} bytes, and {small} beside fewer VNics");
    }
    // 10 Vpcs, 50 Subnets, 50 groups; a number is for all that were written before it.
    let sync = told("fullSyncTransactions").p50;
    assert!((410.0..450.0).contains(&sync), "{sync} transactions for 410 objects");
    assert_eq!(told("restartTransactions").p50, 0.0);
}
