//! A run that waits for a server which DHCP does not serve.

use super::engine::{begun, get, tell};
use super::{AGENT, at};
use crate::reason::{Blocked, Reason};
use crate::workflow::{Reported, advance, comes, unserved};
use api::tinkerbell::Workflow;

#[test]
fn a_run_whose_server_is_not_served_says_so_until_it_is_or_the_run_begins() {
    let reason = Reason::from(Blocked::DhcpPoolFull {
        hardware: "h".to_owned(),
        mac: AGENT.to_owned(),
        at: "08:00:00Z".to_owned(),
        why: "all are taken".to_owned(),
    });
    let said = |w: &Workflow| {
        let all = w.status.iter().flat_map(|status| &status.conditions);
        all.filter(|c| c.type_ == "ServerNotServed").map(|c| (c.reason.clone(), c.message.clone())).next()
    };
    let mut w = begun();
    assert_eq!(comes(&w), [AGENT]);
    assert_eq!(unserved(&w, None, at(1)), None);
    w.status = unserved(&w, Some(&reason), at(1));
    assert_eq!(said(&w), Some((Some("DhcpPoolFull".to_owned()), Some(reason.told()))));
    assert_eq!(unserved(&w, Some(&reason), at(2)), None, "it is written once");
    // Since when nobody asks does not change by that.
    let awaited = advance(&w, None, None, at(600)).status.expect("nobody asks");
    assert!(awaited.conditions.iter().any(|c| c.type_ == "AgentAwaited"), "{awaited:?}");
    let mut served = w.clone();
    served.status = unserved(&served, None, at(3));
    assert_eq!(said(&served), None);
    get(&mut w, AGENT);
    tell(&mut w, AGENT, "a", Reported::Running, 4);
    assert_eq!(comes(&w), [] as [&str; 0]);
    w.status = unserved(&w, None, at(5));
    assert_eq!(said(&w), None);
}
