//! Networks that are not ours alone: behind a relay (isc-dhcp-relay), and beside another DHCP server (dnsmasq). The client is
//! isc-dhcp-client, or busybox's udhcpc.

use super::site::{self, ApiServer, OTHER, US, client, field, path, udhcpc, udhcpc_at, until};
use super::{MAC, RELAYED};
use sandbox::preflight;
use std::path::Path;

/// Inside there is no way out. What cannot be had is told there.
pub async fn prefetch() {
    for (program, package) in [DHCRELAY, DNSMASQ, DHCLIENT] {
        let _ = preflight::unpacked(program, package).await;
    }
}

/// Programs and their packages.
pub const DHCRELAY: (&str, &str) = ("dhcrelay", "isc-dhcp-relay");
pub const DNSMASQ: (&str, &str) = ("dnsmasq", "dnsmasq-base");
const DHCLIENT: (&str, &str) = ("dhclient", "isc-dhcp-client");

/// How isc-dhcp-client is started.
#[derive(Default)]
struct Dhclient<'a> {
    interface: &'a str,
    mac: &'a str,
    /// What it knows of an earlier lease, and what it is configured with, as its manual has them.
    lease: &'a str,
    config: &'a str,
    /// What is waited for in its note of a lease.
    wanted: &'a str,
}

/// What isc-dhcp-client noted of its leases.
async fn dhclient(test: &str, dir: &tempfile::TempDir, asked: Dhclient<'_>) -> Option<String> {
    let Dhclient { interface, mac, lease, config, wanted } = asked;
    let (program, environment) = part(test, preflight::unpacked(DHCLIENT.0, DHCLIENT.1).await)?;
    let (leases, file) = (path(dir, "dhclient.leases"), path(dir, "dhclient.conf"));
    std::fs::write(&leases, lease).expect("written");
    std::fs::write(&file, config).expect("written");
    let set = client(&["ip", "link", "set", interface, "address", mac]).await;
    assert!(set.status.success(), "{set:?}");
    let text = |path: &Path| path.display().to_string();
    let (program, leases_text, file, pid) =
        (text(&program), text(&leases), text(&file), text(&path(dir, "dhclient.pid")));
    let libraries = format!("LD_LIBRARY_PATH={}", environment.get("LD_LIBRARY_PATH").map_or("", String::as_str));
    // One lease, then it ends; its script would set the address.
    let words =
        ["env", &libraries, "timeout", "20", &program, "-4", "-1", "-d", "-v", "-cf", &file, "-sf", "/bin/true"];
    let asked = tokio::spawn({
        let words: Vec<_> =
            words.into_iter().chain(["-lf", &leases_text, "-pf", &pid, interface]).map(str::to_owned).collect();
        async move { client(&words.iter().map(String::as_str).collect::<Vec<_>>()).await }
    });
    let lease = until("isc-dhcp-client has a lease", async || {
        let noted = std::fs::read_to_string(&leases).map_err(|error| error.to_string())?;
        if noted.contains(wanted) { Ok(noted) } else { Err(noted) }
    })
    .await;
    let pid = std::fs::read_to_string(path(dir, "dhclient.pid")).unwrap_or_default();
    client(&["kill", pid.trim()]).await;
    asked.await.expect("it ended");
    Some(lease)
}

/// A part that is absent is told, and what needs it is left out.
fn part<T>(test: &str, found: anyhow::Result<T>) -> Option<T> {
    found.map_err(|error| eprintln!("SKIP {test}: {error:#}")).ok()
}

/// What the boot service told, once it has.
async fn told(log: &Path, what: &str) {
    until(&format!("it tells {what}"), async || {
        let said = std::fs::read_to_string(log).map_err(|error| error.to_string())?;
        if said.contains(what) { Ok(()) } else { Err(said) }
    })
    .await;
}

/// Its packets come by another interface than the one that DHCP is served on.
pub async fn behind_a_relay(test: &str, dir: &tempfile::TempDir, log: &Path) {
    let Some(relay) = part(test, preflight::unpacked(DHCRELAY.0, DHCRELAY.1).await) else { return };
    let said = path(dir, "relay.log");
    let _relay = site::relay(&relay, &said);
    let pxe = ["-V", "PXEClient:Arch:00007:UNDI:003000", "-x", "0x5d:0007", "-x", "0x5e:010300"];
    let lease = until("a lease by the relay", async || {
        let lease = udhcpc_at("eth1", dir, RELAYED, &pxe).await;
        lease.ok_or_else(|| std::fs::read_to_string(&said).unwrap_or_default())
    })
    .await;
    assert_eq!((field(&lease, "ip"), field(&lease, "boot_file")), ("10.89.0.50".to_owned(), "ipxe.efi".to_owned()));
    let asked =
        Dhclient { interface: "eth1", mac: RELAYED, wanted: "fixed-address 10.89.0.50;", ..Dhclient::default() };
    let Some(lease) = dhclient(test, dir, asked).await else { return };
    assert!(lease.contains("option host-name \"s3\";"), "{lease}");
    // One that remembers another address is told that it is not its own, by the relay too.
    let remembered = "lease { interface \"eth1\"; fixed-address 10.89.0.99; option subnet-mask 255.255.255.0; \
                      renew 4 2037/1/1 00:00:00; rebind 4 2037/1/1 00:00:00; expire 4 2037/1/1 00:00:00; }\n";
    let wanted = "fixed-address 10.89.0.50;";
    let asked = Dhclient { interface: "eth1", mac: RELAYED, lease: remembered, wanted, ..Dhclient::default() };
    dhclient(test, dir, asked).await.expect("it is there");
    told(log, "NAK").await;
}

/// First as if it were alone, then as a proxy.
pub async fn beside_another_server(test: &str, site: &ApiServer, dir: &tempfile::TempDir, mut arguments: Vec<String>) {
    let Some(program) = part(test, preflight::unpacked(DNSMASQ.0, DNSMASQ.1).await) else { return };
    let _other = site::dnsmasq(&program, &path(dir, "dnsmasq.log")).await;
    let log = path(dir, "foreign.log");
    let service = site::boot(&site.kubeconfig, &arguments, US, &log).await;
    let wanted = &format!("option dhcp-server-identifier {OTHER};");
    let config = "reject 10.88.0.1;";
    let asked = Dhclient { interface: "eth0", mac: MAC, config, wanted, ..Dhclient::default() };
    if dhclient(test, dir, asked).await.is_some() {
        told(&log, "another server's offer was taken").await;
    }
    drop(service);
    arguments.push("--dhcp=Proxy".to_owned());
    let log = path(dir, "proxy.log");
    let _service = site::boot(&site.kubeconfig, &arguments, US, &log).await;
    let lease = udhcpc(dir, MAC, &[]).await.expect("a lease");
    assert_eq!(field(&lease, "serverid"), OTHER);
    let said = std::fs::read_to_string(&log).expect("a log");
    assert!(!said.contains("OFFER"), "it does not boot, and hears nothing of us: {said}");
}
