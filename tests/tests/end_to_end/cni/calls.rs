//! Cases 1 to 9.

use super::tool::{ADDRESSES, NETWORK, Said, Sandbox, chained, configure};
use super::{case, short_case};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::site::ORDINARY_NODE as NODE;

/// What a result of version 1.1 may have, by the specification (section 5): members of the result, of an interface, of an address
/// and of a route, each with whether it has to be there.
const RESULT: [(&str, bool); 5] =
    [("cniVersion", true), ("interfaces", false), ("ips", false), ("routes", false), ("dns", false)];
const INTERFACE: [(&str, bool); 6] =
    [("name", true), ("mac", false), ("mtu", false), ("sandbox", false), ("socketPath", false), ("pciID", false)];
const IP: [(&str, bool); 3] = [("address", true), ("gateway", false), ("interface", false)];
const ROUTE: [(&str, bool); 7] = [
    ("dst", true),
    ("gw", false),
    ("mtu", false),
    ("advmss", false),
    ("priority", false),
    ("table", false),
    ("scope", false),
];

fn has_members(of: &Value, members: &[(&str, bool)]) -> Result<()> {
    let object = of.as_object().with_context(|| format!("{of} is no object"))?;
    for (name, must) in members {
        ensure!(!must || object.contains_key(*name), "{of} lacks {name}");
    }
    let known = |name: &&String| members.iter().any(|(known, _)| known == name);
    let unknown = object.keys().find(|name| !known(name));
    ensure!(unknown.is_none(), "{of} has {unknown:?}, which the specification does not know");
    Ok(())
}

/// By the specification's section 5, and that each address names an interface of the list.
pub(super) fn is_valid(result: &Value) -> Result<()> {
    has_members(result, &RESULT)?;
    ensure!(result["cniVersion"] == "1.1.0", "the version is {}", result["cniVersion"]);
    let list = |name: &str| result[name].as_array().cloned().unwrap_or_default();
    list("interfaces").iter().try_for_each(|interface| has_members(interface, &INTERFACE))?;
    list("routes").iter().try_for_each(|route| has_members(route, &ROUTE))?;
    for ip in list("ips") {
        has_members(&ip, &IP)?;
        let place = ip["interface"].as_u64().and_then(|place| usize::try_from(place).ok());
        ensure!(place.is_none_or(|place| place < list("interfaces").len()), "{ip} is of no interface");
    }
    Ok(())
}

async fn added(sandbox: &Sandbox<'_>) -> Result<Value> {
    let said = sandbox.tool("add", NETWORK).await?.done().context("add")?;
    serde_json::from_str(&said).with_context(|| format!("cnitool printed {said}"))
}

#[test]
fn case_01_add() {
    short_case("add", async |site, namespace| {
        let sandbox = Sandbox::make(site, namespace, "one", &ADDRESSES).await?;
        let result = added(&sandbox).await?;
        is_valid(&result)?;
        let interfaces = result["interfaces"].as_array().context("interfaces")?;
        let own = interfaces.iter().find(|interface| interface["name"] == "net1").context("net1 is not told")?;
        ensure!(own["mtu"] == 1442 && own["sandbox"].is_string(), "{own}");
        let shown = sandbox.inside(&["ip", "-brief", "address"]).await?;
        ensure!(ADDRESSES.iter().all(|address| shown.contains(address)), "in the sandbox: {shown}");
        ensure!(shown.contains("eth0") && shown.contains("10.245.0."), "ptp's is there too: {shown}");
        sandbox.end().await
    });
}

#[test]
fn case_02_check() {
    case("check", async |site, namespace| {
        let sandbox = Sandbox::make(site, namespace, "one", &ADDRESSES).await?;
        added(&sandbox).await?;
        sandbox.tool("check", NETWORK).await?.done().context("check")?;
        sandbox.end().await
    });
}

#[test]
fn case_03_del() {
    short_case("del", async |site, namespace| {
        let sandbox = Sandbox::make(site, namespace, "one", &ADDRESSES).await?;
        is_valid(&added(&sandbox).await?)?;
        sandbox.tool("del", NETWORK).await?.done().context("del")?;
        ensure!(!sandbox.has("net1").await? && !sandbox.has("eth0").await?, "a device is left");
        let note = sandbox.note().await?;
        ensure!(note.is_none(), "a note is left: {note:?}");
        // The same pod again: its NIC is made anew, with the address that it had.
        added(&sandbox).await?;
        sandbox.end().await
    });
}

#[test]
fn case_04_gc() {
    case("gc", async |site, namespace| {
        let sandbox = Sandbox::make(site, namespace, "one", &ADDRESSES).await?;
        added(&sandbox).await?;
        sandbox.tool("gc", NETWORK).await?.done().context("gc")?;
        ensure!(!sandbox.has("net1").await?, "net1 is left");
        ensure!(site.pod_notes().await?.is_empty(), "a note is left: {:?}", site.pod_notes().await?);
        sandbox.remove_netns().await
    });
}

#[test]
fn case_05_status() {
    case("status", async |site, namespace| {
        let sandbox = Sandbox::make(site, namespace, "one", &ADDRESSES).await?;
        sandbox.tool("status", NETWORK).await?.done().context("status")?;
        let mut away = chained();
        (away["name"], away["plugins"][1]["socket"]) = (json!("away"), json!("/run/metalplane/none.sock"));
        configure(site, &away).await?;
        sandbox.tool("status", "away").await?.done().context("a node is never stopped by our agent")?;
        (away["name"], away["plugins"][1]["required"]) = (json!("required"), json!(true));
        configure(site, &away).await?;
        sandbox.tool("status", "required").await?.refused("AgentUnresponsive")?;
        sandbox.remove_netns().await
    });
}

#[test]
fn case_06_version() {
    case("version", async |site, _| {
        let said = Sandbox::plugin(site, "VERSION", &json!({"cniVersion": "1.1.0"})).await?.done()?;
        let said: Value = serde_json::from_str(&said)?;
        let versions = said["supportedVersions"].as_array().context("supportedVersions")?;
        ensure!(said["cniVersion"] == "1.1.0" && versions.contains(&json!("1.1.0")), "{said}");
        Ok(())
    });
}

#[test]
fn case_07_check_fails_after_an_address_was_removed() {
    case("removed_address", async |site, namespace| {
        let sandbox = Sandbox::make(site, namespace, "one", &ADDRESSES).await?;
        added(&sandbox).await?;
        for address in ADDRESSES {
            sandbox.inside(&["ip", "address", "del", address, "dev", "net1"]).await?;
            sandbox.tool("check", NETWORK).await?.refused(address)?;
            sandbox.inside(&["ip", "address", "add", address, "dev", "net1", "nodad"]).await?;
            sandbox.tool("check", NETWORK).await?.done().context("it is as it was")?;
        }
        sandbox.end().await
    });
}

#[test]
fn case_08_del_twice_and_without_the_namespace() {
    case("del_twice", async |site, namespace| {
        let sandbox = Sandbox::make(site, namespace, "one", &ADDRESSES).await?;
        added(&sandbox).await?;
        for _ in 0..2 {
            sandbox.tool("del", NETWORK).await?.done().context("del")?;
        }
        added(&sandbox).await?;
        sandbox.remove_netns().await?;
        for _ in 0..2 {
            sandbox.tool("del", NETWORK).await?.done().context("del without the namespace")?;
        }
        ensure!(site.pod_notes().await?.is_empty(), "a note is left: {:?}", site.pod_notes().await?);
        Ok(())
    });
}

#[test]
fn case_09_gc_removes_what_is_not_listed_and_nothing_else() {
    case("gc_listed", async |site, namespace| {
        let keeps = Sandbox::make(site, namespace, "keeps", &ADDRESSES).await?;
        let goes = Sandbox::make(site, namespace, "goes", &["10.30.0.32/24", "fd00:30::32/64"]).await?;
        added(&keeps).await?;
        added(&goes).await?;
        let gc = async |network: &str, listed: Value| -> Result<Said> {
            let config = json!({"cniVersion": "1.1.0", "name": network, "type": "metalplane", "cni.dev/valid-attachments": listed});
            Sandbox::plugin(site, "GC", &config).await
        };
        gc("another", json!([])).await?.done()?;
        ensure!(keeps.has("net1").await? && goes.has("net1").await?, "of another network");
        gc(NETWORK, json!([{"containerID": keeps.container().await?, "ifname": "eth0"}])).await?.done()?;
        ensure!(keeps.has("net1").await? && !goes.has("net1").await?, "the one that is listed stays, the other goes");
        ensure!(goes.has("eth0").await?, "what ptp made is ptp's");
        site.enter(NODE, &["ip", "netns", "exec", &keeps.netns(), "ip", "link", "show", "net1"]).await?;
        keeps.tool("check", NETWORK).await?.done()?;
        goes.end().await?;
        keeps.end().await
    });
}
