//! What a Vpc and a VNic are told beside addresses and groups, as packets meet it on two chassis: a route by a VNic, addresses that move from
//! one VNic to another, and rates. The VNics are bound by `nodeName`, in network namespaces.

use super::machine::{SOON, SOON_FLAG};
use super::on_servers;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::time::Duration;
use tests::site::{Netns, ORDINARY_NODE, Perl, Site, by_first_address, until};

const ANNOUNCE: &str = include_str!("announce.pl");
const BLAST: &str = include_str!("blast.pl");
const COUNT: &str = include_str!("count.pl");
/// No other test does something to it, or to the ordinary node, while one has server 1.
const DPU: &str = "dpu-1";
const ONE: [&str; 2] = ["10.62.0.21", "fd00:62::21"];
const TWO: [&str; 2] = ["10.62.0.22", "fd00:62::22"];
/// In another Subnet: what it sends goes by the router.
const ASKS: [&str; 2] = ["10.62.1.23", "fd00:62:0:1::23"];
/// Of a VNic that no node has.
const SHARED: [&str; 2] = ["10.62.0.200", "fd00:62::200"];
/// Outside of every Subnet: what is routed to the first VNic, and a host there.
const ROUTED: [&str; 2] = ["10.95.0.0/24", "fd00:95::/64"];
const BEHIND: [&str; 2] = ["10.95.0.7", "fd00:95::7"];
const PORT: u16 = 8080;
const COUNTED: &str = "9001";
/// What the second VNic receives and sends at most, in Mbit a second; a tenth of what is sent to it, or less.
const INGRESS: u32 = 4;
const EGRESS: u32 = 2;
const SECONDS: u32 = 2;

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "metalplane.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn objects() -> Value {
    let routes: Vec<Value> =
        ROUTED.into_iter().zip(ONE).map(|(to, by)| json!({"destination": to, "nextHops": [by]})).collect();
    let of_one: Vec<&str> = SHARED.into_iter().chain(ROUTED).collect();
    let qos = json!({"ingressMbps": INGRESS, "egressMbps": EGRESS});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        object("Vpc", "routed", &json!({"defaultSecurityGroups": ["inside"], "routes": routes})),
        object("Subnet", "near", &json!({"vpc": {"name": "routed"}, "cidr": "10.62.0.0/24", "ipv6Cidr": "fd00:62::/64"})),
        object("Subnet", "far", &json!({"vpc": {"name": "routed"}, "cidr": "10.62.1.0/24", "ipv6Cidr": "fd00:62:0:1::/64"})),
        object("SecurityGroup", "inside", &json!({
            "vpc": {"name": "routed"}, "ingress": [{"from": [{"securityGroup": {"name": "inside"}}]}],
        })),
        object("VNic", "shared", &json!({"subnet": "near", "addresses": SHARED})),
        object("VNic", "one", &json!({"subnet": "near", "addresses": ONE, "nodeName": DPU, "allowedAddresses": of_one})),
        object("VNic", "two", &json!({
            "subnet": "near", "addresses": TWO, "nodeName": ORDINARY_NODE, "allowedAddresses": SHARED, "qos": qos,
        })),
        object("VNic", "asks", &json!({"subnet": "far", "addresses": ASKS, "nodeName": ORDINARY_NODE})),
    ]})
}

/// One VNic, on its chassis.
struct Member {
    mac: String,
    at: Netns,
}

/// All three.
struct Members<'a> {
    site: &'a Site,
    one: Member,
    two: Member,
    asks: Member,
}

/// `way_out.rs`, which has the same server, looks whether any Vpc has routes.
#[test]
fn routes_shared_addresses_and_rates_hold_for_packets() {
    on_servers(&[1], "by_packets", async |site, namespace| {
        site.apply_in(namespace, &objects().to_string()).await?;
        let mut members = Members::made(site, namespace).await?;
        let tested = members.all(namespace).await;
        let ended = members.end(namespace).await;
        tested.and(ended)
    });
}

impl<'a> Members<'a> {
    async fn made(site: &'a Site, namespace: &str) -> Result<Members<'a>> {
        let make = async |name: &str, node: &str| {
            let vnic = site.assigned_vnic(namespace, name).await?;
            let mac = vnic["status"]["macAddress"].as_str().context("a MAC address")?.to_owned();
            let mut at = site.netns_of_vnic(&vnic, node, &format!("packets-{name}"), by_first_address).await?;
            at.listen(site, &[PORT]).await?;
            anyhow::Ok(Member { mac, at })
        };
        let (one, two, asks) =
            tokio::try_join!(make("one", DPU), make("two", ORDINARY_NODE), make("asks", ORDINARY_NODE))?;
        Ok(Self { site, one, two, asks })
    }

    async fn all(&self, namespace: &str) -> Result<()> {
        let limit = format!("--timeout={SOON_FLAG}");
        let in_force =
            ["wait", "--for=condition=InForce", "vnic/one", "vnic/two", "vnic/asks", "-n", namespace, &limit];
        self.site.kubectl(&in_force).await?;
        self.routed().await.context("a route by a VNic")?;
        self.shared().await.context("addresses that move")?;
        self.rates().await.context("rates")
    }

    async fn end(&mut self, namespace: &str) -> Result<()> {
        for member in [&mut self.one, &mut self.two, &mut self.asks] {
            member.at.remove(self.site).await?;
        }
        let limit = format!("--timeout={SOON_FLAG}");
        for kind in ["vnic", "sn,sg", "vpc"] {
            self.site.kubectl(&["delete", kind, "--all", "-n", namespace, &limit]).await?;
        }
        Ok(())
    }

    /// What is for hosts outside of every Subnet arrives at the VNic that is its next hop, and what they answer comes back.
    async fn routed(&self) -> Result<()> {
        let Self { site, one, asks, .. } = self;
        for behind in BEHIND {
            one.has_too(site, behind).await?;
            let ask = ["ping", "-q", "-i", "0.2", "-c", "1", "-w", "5", behind];
            until(&format!("{behind} answers"), SOON, async || {
                Ok(asks.at.run(site, &ask).await.map(drop).map_err(|error| format!("{error:#}")))
            })
            .await?;
        }
        self.arrives(one, BEHIND, "routed", 1, async || Ok(())).await?;
        ensure!(!self.two.has_heard("routed"), "{:?}", self.two.at.heard());
        Ok(())
    }

    /// Who has announced them last receives, and nobody else: as with VRRP, where the one that was has them still.
    async fn shared(&self) -> Result<()> {
        let Self { site, one, two, .. } = self;
        self.arrives(one, SHARED, "shared", 1, async || one.takes_over(site).await).await?;
        ensure!(!two.has_heard("shared"), "the one that announced nothing heard {:?}", two.at.heard());
        self.arrives(two, SHARED, "shared", 2, async || two.takes_over(site).await).await?;
        self.arrives(two, SHARED, "shared", 3, async || Ok(())).await?;
        ensure!(!one.has_heard("shared-3"), "the one that announced them before heard {:?}", one.at.heard());
        Ok(())
    }

    /// From the other Subnet, by UDP; until it has arrived by either family. `first`: before each attempt.
    async fn arrives(
        &self,
        at: &Member,
        addresses: [&str; 2],
        what: &str,
        turn: u8,
        first: impl AsyncFn() -> Result<()>,
    ) -> Result<()> {
        let [four, six] = addresses;
        let lines = format!("udp {four} {PORT} {what}-{turn}-4\nudp {six} {PORT} {what}-{turn}-6\n");
        until(&format!("what is for {four} and {six} arrives"), SOON, async || {
            first().await?;
            self.asks.at.send(self.site, &lines).await?;
            let heard = at.at.heard();
            let all = [4, 6].iter().all(|family| heard.contains(&format!("udp {what}-{turn}-{family}")));
            Ok(if all { Ok(()) } else { Err(format!("heard was {heard:?}")) })
        })
        .await
    }

    /// The second VNic has both rates, of either family; the first one, by the same way, has none.
    async fn rates(&self) -> Result<()> {
        let count = async |member: &Member| Counter::start(self.site, &member.at).await;
        let (one, two) = tokio::try_join!(count(&self.one), count(&self.two))?;
        for ((to_one, to_two), family) in ONE.into_iter().zip(TWO).zip(["IPv4", "IPv6"]) {
            let (received, sent) = tokio::try_join!(
                two.during(self.blast(&self.asks, to_two)),
                one.during(self.blast(&self.two, to_one)),
            )?;
            for (what, rate, limit) in [("receives", received, INGRESS), ("sends", sent, EGRESS)] {
                let limit = f64::from(limit);
                let holds = rate > 0.5 * limit && rate < 1.5 * limit;
                ensure!(holds, "by {family} it {what} {rate:.1} Mbit a second, of {limit} that it may");
            }
        }
        let unlimited = one.during(self.blast(&self.asks, ONE[0])).await?;
        ensure!(unlimited > 4.0 * f64::from(INGRESS), "without a limit {unlimited:.1} Mbit a second arrived");
        one.program.end().await?;
        two.program.end().await
    }

    async fn blast(&self, from: &Member, to: &str) -> Result<()> {
        let seconds = SECONDS.to_string();
        from.at.run(self.site, &["perl", "-e", BLAST, &seconds, to, COUNTED]).await.map(drop)
    }
}

impl Member {
    fn has_heard(&self, what: &str) -> bool {
        self.at.heard().iter().any(|line| line.contains(what))
    }

    /// An address beside its own, which is chosen as no packet's source; nobody is told.
    async fn has_too(&self, site: &Site, address: &str) -> Result<()> {
        let for_six: &[&str] = if address.contains(':') { &["nodad", "preferred_lft", "0"] } else { &[] };
        let add = [&["ip", "address", "replace", address, "dev", "eth0"], for_six].concat();
        self.at.run(site, &add).await.map(drop)
    }

    /// As keepalived does, which announces more than once too: an announcement that OVN drops, or nobody hears, is not told to anybody.
    async fn takes_over(&self, site: &Site) -> Result<()> {
        for address in SHARED {
            self.has_too(site, address).await?;
        }
        let [four, six] = SHARED;
        self.at.run(site, &["perl", "-e", ANNOUNCE, "eth0", &self.mac, four, six]).await.map(drop)
    }
}

/// What arrives at a VNic by UDP.
struct Counter {
    program: Perl,
}

impl Counter {
    async fn start(site: &Site, at: &Netns) -> Result<Self> {
        Ok(Self { program: at.perl(site, COUNT, &[COUNTED]).await? })
    }

    /// Since it was asked before.
    async fn bytes(&self) -> Result<u32> {
        let before = self.program.heard().len();
        self.program.is_told("").await?;
        let said = until("the bytes are counted", Duration::from_secs(10), async || {
            Ok(self.program.heard().get(before).cloned().ok_or_else(|| "nothing".to_owned()))
        })
        .await?;
        said.parse().with_context(|| format!("'{said}' is no count of bytes"))
    }

    /// Mbit a second, while something sends for [`SECONDS`].
    async fn during(&self, sends: impl Future<Output = Result<()>>) -> Result<f64> {
        self.bytes().await?;
        sends.await?;
        Ok(f64::from(self.bytes().await?) * 8.0 / 1e6 / f64::from(SECONDS))
    }
}
