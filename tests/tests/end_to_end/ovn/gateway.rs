//! A gateway node dies: the next one of `gatewayNodes` carries what goes out, while a third chassis is there to see it.

use super::LONG;
use crate::machine::SOON;
use crate::on_site;
use crate::way_out::{self, HOST, Way};
use anyhow::{Context, Result};
use std::time::Instant;
use tests::site::until;

const DIES: &str = "dpu-1";
const PARTS: [&str; 2] = ["dpu-1/ovn-controller", "dpu-1/ovs-vswitchd"];

#[test]
fn a_gateway_node_that_dies_is_replaced() {
    if std::env::var_os(LONG).is_none() {
        eprintln!(
            "SKIP ovn::gateway::a_gateway_node_that_dies_is_replaced: `make judges JUDGE=ovn` runs it ({LONG}=1)"
        );
        return;
    }
    on_site("judge_ovn_gateway", async |site, namespace| {
        let way = way_out::begun(site, namespace, "dpu-1, dpu-2").await?;
        let tested = replaced(&way).await;
        let gone = way_out::is_removed(&way).await;
        tested.and(gone)
    });
}

async fn replaced(way: &Way<'_>) -> Result<()> {
    way_out::routed(way).await?;
    pass(way).await.context("by the first one")?;
    for part in PARTS {
        way.site.sandbox.kill_process(part).await?;
    }
    let began = Instant::now();
    let passed = pass(way).await.context("by the next one");
    eprintln!("both families pass again after {:.1} s", began.elapsed().as_secs_f64());
    // Whatever came of it: the other tests use the same switch.
    for part in PARTS.iter().rev() {
        way.site.sandbox.start_process(part).await?;
    }
    until("the switch is there again", SOON, async || {
        Ok(way.site.configure_switch(DIES).await.map_err(|error| format!("{error:#}")))
    })
    .await?;
    passed?;
    pass(way).await.context("once the first one is back")
}

async fn pass(way: &Way<'_>) -> Result<()> {
    for host in HOST {
        way.passes(true, host).await?;
    }
    Ok(())
}
