//! What the chart's values become is what a real API server takes: its own checks and policies, not only helm's syntax.

use super::on_servers;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use tests::chart::{Helm, SETTINGS, Setting};
use tests::site::Site;

/// Their definition is the Prometheus operator's, which the site has not.
const FOREIGN: &str = "monitoring.podMonitor";

#[test]
fn the_api_server_takes_what_every_value_of_the_chart_becomes() {
    on_servers(&[3], "chart_values", async |site, _| {
        let helm = Helm::find().await?;
        let mut together: BTreeMap<&str, Vec<&Setting>> = BTreeMap::new();
        // What leaves something out would hide what the others become.
        for setting in SETTINGS.iter().filter(|setting| setting.json != "false" && setting.path != FOREIGN) {
            together.entry(setting.within).or_default().push(setting);
        }
        for (within, settings) in together {
            taken(site, &helm, within, &settings).await.with_context(|| format!("within {within:?}"))?;
        }
        Ok(())
    });
}

async fn taken(site: &Site, helm: &Helm, within: &str, settings: &[&Setting]) -> Result<()> {
    let flags: Vec<String> = settings.iter().map(|setting| setting.flag()).collect();
    let rendered = helm.template(within, &flags)?;
    ensure!(rendered.status.success(), "helm: {}", String::from_utf8_lossy(&rendered.stderr));
    let said = site.dry_run(&String::from_utf8(rendered.stdout)?).await?;
    ensure!(said.contains("serverside-applied (server dry run)"), "kubectl said: {said}");
    Ok(())
}
