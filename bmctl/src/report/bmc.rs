//! Of the server's BMC, by curl: the systems, their boot options, and the resources that their settings are written to.

use super::archive::Part;
use super::dpu::run;
use serde_json::Value;
use std::ffi::OsStr;

pub(super) struct Bmc<'a> {
    pub url: &'a str,
    pub user: &'a str,
    pub password: &'a str,
    pub insecure: bool,
}

/// A chassis of blades has some.
const MOST_SYSTEMS: usize = 16;

impl Bmc<'_> {
    pub(super) async fn gather(&self, path: &OsStr) -> Vec<Part> {
        let root = self.get("/redfish/v1/", path).await;
        let systems = self.get("/redfish/v1/Systems", path).await;
        let members = members(&systems);
        let mut parts = vec![Part::text("bmc/root.json", root), Part::text("bmc/systems.json", systems)];
        for (number, system) in members.iter().take(MOST_SYSTEMS).enumerate() {
            let read = self.get(system, path).await;
            let settings = read.as_ref().ok().and_then(|text| settings(text));
            parts.push(Part::text(&format!("bmc/{number}/system.json"), read));
            let options = self.get(&format!("{}/BootOptions?$expand=*", system.trim_end_matches('/')), path).await;
            parts.push(Part::text(&format!("bmc/{number}/boot-options.json"), options));
            if let Some(settings) = settings {
                let pending = self.get(&settings, path).await;
                parts.push(Part::text(&format!("bmc/{number}/settings.json"), pending));
            }
        }
        parts
    }

    /// The configuration is for curl's standard input: its arguments are anybody's to read.
    async fn get(&self, resource: &str, path: &OsStr) -> Result<String, String> {
        let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        let url = format!("{}{resource}", self.url.trim_end_matches('/'));
        let credential = format!("{}:{}", self.user, self.password);
        let insecure = if self.insecure { "insecure\n" } else { "" };
        let config = format!(
            "url = \"{}\"\nuser = \"{}\"\n{insecure}silent\nshow-error\nfail\ngloboff\nmax-time = 15\nheader = \"Accept: application/json\"\n",
            quoted(&url),
            quoted(&credential)
        );
        let said = run(&["curl", "--config", "-"], path, Some(&config)).await;
        // Whatever a program says of an error, this is not told on.
        said.map_err(|why| match self.password {
            "" => format!("{resource}: {why}"),
            password => format!("{resource}: {}", why.replace(password, "REMOVED")),
        })
    }
}

fn members(read: &Result<String, String>) -> Vec<String> {
    let systems: Value = read.as_ref().ok().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let all = systems["Members"].as_array().into_iter().flatten();
    all.filter_map(|member| member["@odata.id"].as_str()).map(str::to_owned).collect()
}

fn settings(system: &str) -> Option<String> {
    let system: Value = serde_json::from_str(system).ok()?;
    system["@Redfish.Settings"]["SettingsObject"]["@odata.id"].as_str().map(str::to_owned)
}
