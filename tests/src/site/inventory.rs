//! The servers of the sandbox as inventory: Tinkerbell's Hardware and BMC Machine, a Secret, and the Dpu in each.

use super::{INVENTORY_NAMESPACE, Site, until};
use anyhow::{Context, Result};
use sandbox::layout::DPU_BMC_PORT;
use sandbox::supervisor::ReadyServer;
use std::time::Duration;

/// The Hardware that a virtual server is called by: `server-1` is `rack1-u01`.
pub fn hardware_name(server: &str) -> String {
    server.replace("server-", "rack1-u0")
}

/// Host and port.
fn bmc_of(server: &ReadyServer) -> (&str, &str) {
    let address = server.bmc.trim_start_matches("https://");
    address.split_once(':').unwrap_or((address, "443"))
}

/// The BMC of a server, with its Secret.
pub(super) fn bmc_objects(server: &ReadyServer) -> Result<String> {
    let name = hardware_name(&server.name);
    let password = std::fs::read_to_string(&server.bmc_password_file)
        .with_context(|| format!("read {}", server.bmc_password_file.display()))?;
    let ((host, port), user, password) = (bmc_of(server), &server.bmc_user, password.trim());
    Ok(format!(
        r#"
apiVersion: v1
kind: Secret
metadata: {{name: {name}-bmc, namespace: {INVENTORY_NAMESPACE}}}
stringData: {{username: "{user}", password: "{password}"}}
---
apiVersion: bmc.tinkerbell.org/v1alpha1
kind: Machine
metadata: {{name: {name}, namespace: {INVENTORY_NAMESPACE}}}
spec:
  connection:
    host: {host}
    port: 623
    authSecretRef: {{name: {name}-bmc, namespace: {INVENTORY_NAMESPACE}}}
    insecureTLS: true
    providerOptions: {{redfish: {{port: {port}}}}}
"#
    ))
}

impl Site {
    pub(super) async fn rack_servers(&self) -> Result<()> {
        let bare = self.bare_servers();
        let mut servers = self.sandbox.ready().servers.clone();
        servers.retain(|server| !bare.contains(&server.name));
        for server in &servers {
            let name = hardware_name(&server.name);
            let objects = bmc_objects(server)?;
            let host = bmc_of(server).0;
            self.apply(&format!(
                r#"{objects}---
apiVersion: bmc.tinkerbell.org/v1alpha1
kind: Machine
metadata: {{name: {name}-dpu, namespace: {INVENTORY_NAMESPACE}}}
spec:
  connection:
    host: {host}
    port: 623
    authSecretRef: {{name: {name}-bmc, namespace: {INVENTORY_NAMESPACE}}}
    insecureTLS: true
    providerOptions: {{redfish: {{port: {DPU_BMC_PORT}, systemName: Bluefield}}}}
---
apiVersion: tinkerbell.org/v1alpha1
kind: Hardware
metadata:
  name: {name}
  namespace: {INVENTORY_NAMESPACE}
  labels: {{metalplane.io/class: virtual}}
spec:
  bmcRef: {{apiGroup: bmc.tinkerbell.org, kind: Machine, name: {name}}}
"#
            ))
            .await?;
        }
        for server in &servers {
            self.approve(&server.name.replace("server-", "dpu-"), &hardware_name(&server.name), "Standby").await?;
        }
        Ok(())
    }

    /// Says which BMC is the DPU's own (`None`: none any more), and waits until it is verified.
    pub async fn name_dpu_bmc(&self, dpu: &str, hardware: Option<&str>) -> Result<()> {
        let reference = hardware.map_or("null".to_owned(), |hardware| format!(r#"{{"name":"{hardware}-dpu"}}"#));
        let patch = format!(r#"{{"spec":{{"bmcRef":{reference}}}}}"#);
        self.kubectl(&["patch", "dpu", dpu, "--type=merge", "-p", &patch]).await?;
        let wanted = if hardware.is_some() { "True" } else { "Unknown" };
        let condition = format!("--for=condition=BmcVerified={wanted}");
        self.kubectl(&["wait", &condition, &format!("dpu/{dpu}"), "--timeout=60s"]).await.map(drop)
    }

    /// What an administrator does once per DPU: says which server it sits in and lets it in.
    pub async fn approve(&self, dpu: &str, hardware: &str, power_domain: &str) -> Result<()> {
        until(&format!("the agent of {dpu} has registered"), Duration::from_secs(60), async || {
            Ok(self.get(&["dpu", dpu]).await?.map(drop).ok_or_else(|| "no Dpu".to_owned()))
        })
        .await?;
        let patch = format!(
            r#"{{"spec":{{"hardwareRef":{{"name":"{hardware}"}},"powerDomain":"{power_domain}","approved":true}}}}"#
        );
        self.kubectl(&["patch", "dpu", dpu, "--type=merge", "-p", &patch]).await?;
        self.kubectl(&["wait", "--for=condition=Ready", &format!("dpu/{dpu}"), "--timeout=180s"]).await?;
        Ok(())
    }
}
