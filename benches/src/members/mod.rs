//! Members of a Vpc that come, and a rule of theirs that changes: VNics with `nodeName` until they are in force and until they answer, a
//! group until its new rule is in force, and pods with one NIC by turns with pods without.

mod pod;
mod rule;
mod vnic;
mod writes;

use crate::Figures;
use crate::args::Members;
use crate::figure::{Figure, Unit};
use crate::stage::{NAMESPACE, Stage};
use anyhow::{Context, Result};
use sandbox::handle::Options;
use std::collections::BTreeMap;
use tests::site::{Agents, Place};

const SUBNET: &str = "apiVersion: metalplane.io/v1alpha1
kind: Subnet
metadata: {name: members}
spec: {cidr: 10.31.0.0/24}
";
/// Who pings: a device on that node, its place, and the MAC address that goes with its address.
const ASKER: (&str, &str, &str) = ("dpu-1", "asker", "02:70:0a:1f:00:fa");
const ASKS_AS: Place = Place { namespace: NAMESPACE, subnet: "members", addresses: &["10.31.0.250/24"] };
const ASKER_ADDRESS: &str = "10.31.0.250";
/// Where the VNics are, and the device of each in its turn.
const NODE: &str = "dpu-2";
const DEVICE: &str = "member";

/// Samples by figure.
#[derive(Default)]
struct Samples(BTreeMap<&'static str, (Unit, Vec<f64>)>);

impl Samples {
    fn took(&mut self, figure: &'static str, milliseconds: i64) {
        self.add(figure, Unit::Milliseconds, milliseconds as f64);
    }

    fn counted(&mut self, figure: &'static str, count: f64) {
        self.add(figure, Unit::Count, count);
    }

    fn add(&mut self, figure: &'static str, unit: Unit, sample: f64) {
        self.0.entry(figure).or_insert_with(|| (unit, Vec::new())).1.push(sample);
    }

    fn figures(self) -> Figures {
        let figure =
            |(name, (unit, samples)): (&str, (Unit, Vec<f64>))| Some((name.to_owned(), Figure::of(unit, &samples)?));
        self.0.into_iter().filter_map(figure).collect()
    }
}

pub async fn measure(options: &Members) -> Result<Figures> {
    let stage = Stage::without_image("bench-members", Options::default(), Agents::DaemonSet).await?;
    let measured = all(&stage, options).await;
    Ok(stage.end(measured).await?.figures())
}

async fn all(stage: &Stage, options: &Members) -> Result<Samples> {
    stage.site.apply_in(NAMESPACE, SUBNET).await?;
    let mut samples = Samples::default();
    stage.site.probe(ASKER.0, ASKER.1, ASKS_AS).await?;
    stage.story.say(&format!("{} VNics, one after the other", options.vnics));
    for turn in 0..options.vnics {
        vnic::come(stage, turn, &mut samples).await.with_context(|| format!("VNic {turn}"))?;
    }
    stage.site.remove_probe(ASKER.0, ASKER.1).await?;
    stage.story.say(&format!("{} changes of a rule", options.rules));
    rule::change(stage, options.rules, &mut samples).await?;
    stage.story.say(&format!("{} pods without a NIC, and as many with one", options.pods));
    let account = ["wait", "--for=create", "serviceaccount/default", "-n", NAMESPACE, "--timeout=60s"];
    stage.site.kubectl(&account).await?;
    for turn in 0..options.pods {
        for kind in [&pod::WITHOUT, &pod::WITH_NIC] {
            pod::live(stage, kind, &mut samples).await.with_context(|| format!("{} {turn}", kind.start))?;
        }
    }
    Ok(samples)
}
