//! The judge `ovn`: three answers to one question, whether a packet passes. A model that reads the applied manifests alone, the packet
//! itself by its own payload, and ovn-trace; first as drawn, then after each change of one rule, or of the groups that one VNic is in, once
//! the group or the VNic says that the change is in force, and not a moment later.
//!
//! | file | what |
//! |---|---|
//! | `draw.rs` | the network, at random from the seed |
//! | `endpoint.rs`, `guest.rs` | where packets come from and go to |
//! | `model.rs` | the first answer |
//! | `trace.rs` | the third |
//! | `open.rs` | connections that are open while their rule goes |
//! | `withstand.rs` | what OVN is made of is killed |
//! | `gateway.rs` | a gateway node dies |
//! | `cloud_init.rs` | what a Debian's cloud-init makes of the metadata |

mod cloud_init;
mod draw;
mod endpoint;
mod gateway;
mod guest;
mod model;
mod open;
mod trace;
mod withstand;

use super::machine::SOON;
use super::on_site;
use super::vpc_pods::pod;
use anyhow::{Context, Result, ensure};
use draw::{Draw, PORTS, VPCS};
use endpoint::Endpoint;
use futures::future::try_join_all;
use model::{Model, Packet};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Instant, SystemTime};
use tests::site::{ORDINARY_NODE as NODE, Site, until};
use trace::Asked;

const LONG: &str = "LONG_TESTS";
/// Repeats a run.
const SEED: &str = "JUDGE_SEED";
/// Where the answers are left.
const FOLDER: &str = "JUDGE_FOLDER";
const NODES: [&str; 3] = ["dpu-1", "dpu-2", NODE];
const PER_VPC: usize = 5;
/// So many of each Vpc are there before the first questions.
const FIRST: usize = 2;
const CHANGES: usize = 6;
/// So many VNics are put into other groups, one after the other.
const REGROUPED: usize = 2;
/// The tunnels that the site has otherwise, and those that it has for one round.
const GENEVE: &str = "geneve";
const VXLAN: &str = "vxlan";

struct Question {
    from: usize,
    source: IpAddr,
    to: IpAddr,
    packet: Packet,
}

struct Run<'a> {
    site: &'a Site,
    namespace: &'a str,
    draw: Draw,
    model: Model,
    groups: Vec<Value>,
    vnics: Vec<Value>,
    endpoints: Vec<Endpoint>,
    /// By Subnet: the name of its switch, and the MAC address of its router.
    switches: BTreeMap<String, (String, String)>,
    round: usize,
    asked: usize,
    pairs: BTreeSet<(usize, String)>,
    wrong: Vec<String>,
    transcript: String,
}

#[test]
fn three_answers_agree() {
    if std::env::var_os(LONG).is_none() {
        eprintln!("SKIP ovn::three_answers_agree: `make judges JUDGE=ovn` runs it ({LONG}=1)");
        return;
    }
    on_site("judge_ovn", async |site, namespace| {
        let seed = match std::env::var(SEED) {
            Ok(seed) => seed.parse().with_context(|| format!("{SEED}={seed}: a number is expected"))?,
            Err(_) => u64::try_from(SystemTime::UNIX_EPOCH.elapsed()?.as_micros())?,
        };
        eprintln!("{SEED}={seed}");
        let mut run = Run::new(site, namespace, Draw::new(seed));
        let tested = run.all().await;
        let ended = run.end().await;
        run.report(seed, &tested)?;
        tested?;
        ended?;
        ensure!(run.wrong.is_empty(), "{SEED}={seed}: {} of {} disagree: {}", run.wrong.len(), run.asked, run.wrong[0]);
        Ok(())
    });
}

impl<'a> Run<'a> {
    fn new(site: &'a Site, namespace: &'a str, draw: Draw) -> Self {
        let (model, groups, vnics, endpoints, switches) = (Model::default(), vec![], vec![], vec![], BTreeMap::new());
        let (round, asked, pairs, wrong, transcript) = (0, 0, BTreeSet::new(), vec![], String::new());
        Self {
            site,
            namespace,
            draw,
            model,
            groups,
            vnics,
            endpoints,
            switches,
            round,
            asked,
            pairs,
            wrong,
            transcript,
        }
    }

    async fn all(&mut self) -> Result<()> {
        let mut objects = draw::networks();
        self.groups = draw::groups(&self.draw);
        objects.extend(self.groups.clone());
        objects.extend(VPCS.map(|vpc| draw::everybodys(vpc, false)));
        self.apply(&objects).await?;
        self.add(0..FIRST).await?;
        self.ask("as drawn, few").await?;
        self.add(FIRST..PER_VPC).await?;
        self.ask("as drawn, all").await?;
        for _ in 0..CHANGES {
            let place = self.draw.below(self.groups.len());
            let changed = draw::change(&self.draw, &self.groups[place]);
            self.groups[place].clone_from(&changed);
            self.apply(std::slice::from_ref(&changed)).await?;
            self.in_force(&changed).await?;
            self.ask(&format!("after {}", changed["metadata"]["name"])).await?;
        }
        for _ in 0..REGROUPED {
            let place = self.draw.below(self.vnics.len());
            let changed = draw::regroup(&self.draw, &self.vnics[place]);
            self.vnics[place].clone_from(&changed);
            self.apply(std::slice::from_ref(&changed)).await?;
            self.in_force(&changed).await?;
            self.ask(&format!("after other groups of {}", changed["metadata"]["name"])).await?;
        }
        self.tunnels(VXLAN).await?;
        self.ask("by VXLAN").await?;
        self.everything_passes().await
    }

    /// Who hears nothing agrees with a model that lets nothing through: here everybody has to hear all others of its Vpc, and be heard.
    async fn everything_passes(&mut self) -> Result<()> {
        let open = VPCS.map(|vpc| draw::everybodys(vpc, true));
        self.apply(&open).await?;
        for group in &open {
            self.in_force(group).await?;
        }
        let all = self.expected(&self.questions())?;
        let closed = all.iter().filter(|who| who.is_empty()).count();
        ensure!(closed == 0, "the model closes {closed} of {} ways where everything is open", all.len());
        self.ask("all open").await
    }

    /// Of the whole site: one chassis with VXLAN puts all of OVN into the mode that goes with it.
    async fn tunnels(&self, kind: &str) -> Result<()> {
        let set = format!("external-ids:ovn-encap-type={kind}");
        for node in NODES {
            self.site.enter(node, &["ovs-vsctl", "set", "Open_vSwitch", ".", &set]).await?;
        }
        for node in NODES {
            until(&format!("{node} has a tunnel of {kind} to each other chassis, and no other"), SOON, async || {
                let mut there = Vec::new();
                for kind in [GENEVE, VXLAN] {
                    let find = format!("type={kind}");
                    let found = self
                        .site
                        .enter(node, &["ovs-vsctl", "--bare", "--columns=name", "find", "interface", &find])
                        .await?;
                    there.extend(found.split_whitespace().map(|_| kind));
                }
                Ok(if there == [kind; NODES.len() - 1] { Ok(()) } else { Err(format!("{there:?}")) })
            })
            .await?;
        }
        self.nbctl(&["--wait=hv", "sync"]).await.map(drop)
    }

    async fn apply(&mut self, objects: &[Value]) -> Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        writeln!(self.transcript, "apply {list}")?;
        self.site.apply_in(self.namespace, &list.to_string()).await?;
        objects.iter().for_each(|object| self.model.apply(object.clone()));
        Ok(())
    }

    /// Its present generation.
    async fn in_force(&self, object: &Value) -> Result<()> {
        let text = |value: &Value| value.as_str().map(str::to_lowercase).context("kind and name");
        let (kind, name) = (text(&object["kind"])?, text(&object["metadata"]["name"])?);
        until(&format!("{kind} {name} is in force"), SOON, async || {
            let there = self.site.get(&[&kind, &name, "-n", self.namespace]).await?.context("it no longer exists")?;
            let conditions = there["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let said = conditions.iter().find(|said| said["type"] == "InForce").cloned().unwrap_or_default();
            let is = said["status"] == "True" && said["observedGeneration"] == there["metadata"]["generation"];
            Ok(if is { Ok(()) } else { Err(said.to_string()) })
        })
        .await
    }

    /// More VNics of each Vpc, on one chassis after the other; some are those of guests, and the last one of the first Vpc is a pod's.
    async fn add(&mut self, places: std::ops::Range<usize>) -> Result<()> {
        let mut made = Vec::new();
        for (number, vpc) in VPCS.iter().enumerate() {
            for place in places.clone() {
                let is_pods = number == 0 && place + 1 == PER_VPC;
                let name = draw::vnic_name(vpc, place);
                let node = (!is_pods && !guest::is_one(&name)).then(|| NODES[(number + place) % NODES.len()]);
                made.push((draw::vnic(&self.draw, vpc, place, node), name, node, number * PER_VPC + place));
            }
        }
        let objects: Vec<Value> = made.iter().map(|(vnic, ..)| vnic.clone()).collect();
        self.apply(&objects).await?;
        self.vnics.extend(objects);
        let has_guests = made.iter().any(|(_, name, ..)| guest::is_one(name));
        let booting = if has_guests { guest::start(self.site, self.namespace).await? } else { vec![] };
        for (_, name, node, place) in made.iter().filter(|(_, name, ..)| !guest::is_one(name)) {
            let mut endpoint = match node {
                None => self.pod(name).await?,
                Some(node) => endpoint::on_node(self.site, self.namespace, name, node, *place).await?,
            };
            endpoint.listen(self.site).await?;
            self.endpoints.push(endpoint);
        }
        for guest in booting {
            let (console, vnics) = guest.booted().await?;
            for vnic in vnics {
                let mut endpoint = endpoint::in_guest(self.site, self.namespace, vnic, console.clone()).await?;
                endpoint.listen(self.site).await?;
                self.endpoints.push(endpoint);
            }
        }
        self.ports_are_up().await
    }

    async fn ports_are_up(&self) -> Result<()> {
        let uids: Vec<&str> = self.endpoints.iter().map(|endpoint| endpoint.uid.as_str()).collect();
        self.site.ports_are_up(&uids).await
    }

    async fn pod(&self, vnic: &str) -> Result<Endpoint> {
        let networks = json!([{"name": "net1", "vnic": vnic}]).to_string();
        let asks = format!("  annotations: {}\n", json!({"metalplane.io/networks": networks}));
        let limit = format!("--timeout={}s", SOON.as_secs());
        let namespace = self.namespace;
        self.site.kubectl(&["wait", "--for=create", "serviceaccount/default", "-n", namespace, &limit]).await?;
        self.site.apply(&pod(namespace, "inner", &asks)).await?;
        self.site.kubectl(&["wait", "--for=condition=Ready", "pod/inner", "-n", namespace, &limit]).await?;
        endpoint::in_pod(self.site, namespace, vnic, "inner").await
    }

    async fn nbctl(&self, args: &[&str]) -> Result<String> {
        self.site.nbctl(args).await
    }

    async fn switch(&mut self, subnet: &str) -> Result<(String, String)> {
        if let Some(known) = self.switches.get(subnet) {
            return Ok(known.clone());
        }
        let uid = ["get", "subnets.metalplane.io", subnet, "-n", self.namespace, "-o", "jsonpath={.metadata.uid}"];
        let name = format!("mp-{}", self.site.kubectl(&uid).await?.trim());
        let mac = self.nbctl(&["get", "Logical_Router_Port", &format!("{name}.gateway"), "mac"]).await?;
        let found = (name, mac.trim().trim_matches('"').to_owned());
        self.switches.insert(subnet.to_owned(), found.clone());
        Ok(found)
    }

    /// To every address of another, of either family, from everybody: the same address may be somebody's in each Vpc.
    fn questions(&self) -> Vec<Question> {
        let addresses = |endpoint: &Endpoint| self.model.addresses(&endpoint.name);
        let all: BTreeSet<IpAddr> = self.endpoints.iter().flat_map(addresses).collect();
        let mut questions = Vec::new();
        for (from, endpoint) in self.endpoints.iter().enumerate() {
            let own = addresses(endpoint);
            for to in all.iter().copied().filter(|to| !own.contains(to)) {
                let Some(source) = own.iter().copied().find(|own| own.is_ipv4() == to.is_ipv4()) else { continue };
                let port = || PORTS[self.draw.below(PORTS.len())];
                for packet in [Packet::Icmp, Packet::Tcp(port()), Packet::Udp(port())] {
                    questions.push(Question { from, source, to, packet });
                }
            }
        }
        questions
    }

    async fn ask(&mut self, occasion: &str) -> Result<()> {
        let began = Instant::now();
        let questions = self.questions();
        self.round += 1;
        let expected = self.expected(&questions)?;
        let heard = self.send(&questions, &expected).await?;
        let traced = self.trace(&questions).await?;
        let before = self.wrong.len();
        for (number, question) in questions.iter().enumerate() {
            let from = &self.endpoints[question.from].name;
            let mut named = BTreeSet::new();
            for endpoint in &self.endpoints {
                if traced[number].contains(&endpoint.port()) {
                    named.insert(endpoint.name.clone());
                }
            }
            let Question { to, packet, .. } = question;
            let line = format!(
                "{from} to {to}, {packet:?}: model {:?}, heard {:?}, ovn-trace {named:?}",
                expected[number], heard[number]
            );
            let agree = heard[number] == expected[number] && named == expected[number];
            writeln!(self.transcript, "{} {line}", if agree { "  " } else { "NO" })?;
            if !agree {
                self.wrong.push(format!("{occasion}: {line}"));
            }
            self.pairs.insert((question.from, to.to_string()));
        }
        self.asked += questions.len();
        let wrong = self.wrong.len() - before;
        let said = format!(
            "{occasion}: {} endpoints, {} questions, {} let through, {wrong} disagreements, {} s",
            self.endpoints.len(),
            questions.len(),
            expected.iter().filter(|who| !who.is_empty()).count(),
            began.elapsed().as_secs()
        );
        eprintln!("{said}");
        writeln!(self.transcript, "{said}")?;
        Ok(())
    }

    fn expected(&self, questions: &[Question]) -> Result<Vec<BTreeSet<String>>> {
        let receiver = |question: &Question| {
            let Question { from, source, to, packet } = *question;
            Ok(self.model.receiver(&self.endpoints[from].name, source, to, packet)?.into_iter().collect())
        };
        questions.iter().map(receiver).collect()
    }

    fn payload(&self, number: usize) -> String {
        format!("judge-{}-{number}", self.round)
    }

    /// Who has heard each. All that should be heard is waited for; what should not has had as long, and every SYN its second try.
    async fn send(&self, questions: &[Question], expected: &[BTreeSet<String>]) -> Result<Vec<BTreeSet<String>>> {
        let mut lines = vec![String::new(); self.endpoints.len()];
        for (number, question) in questions.iter().enumerate() {
            let (protocol, port) = match question.packet {
                Packet::Icmp => ("icmp", 0),
                Packet::Tcp(port) => ("tcp", port),
                Packet::Udp(port) => ("udp", port),
            };
            writeln!(lines[question.from], "{protocol} {} {port} {}", question.to, self.payload(number))?;
        }
        try_join_all(self.endpoints.iter().zip(lines).map(|(endpoint, lines)| endpoint.send(self.site, lines))).await?;
        let mut heard = Vec::new();
        let waited = until("everything that is allowed is heard", std::time::Duration::from_secs(10), async || {
            heard = self.heard(questions);
            let missing = (0..questions.len()).filter(|number| !expected[*number].is_subset(&heard[*number])).count();
            Ok(if missing == 0 { Ok(()) } else { Err(format!("{missing} are missing")) })
        });
        // What is missing is a disagreement, told with all others.
        drop(waited.await);
        Ok(heard)
    }

    fn heard(&self, questions: &[Question]) -> Vec<BTreeSet<String>> {
        let mut by_payload: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for endpoint in &self.endpoints {
            for line in endpoint.heard() {
                by_payload.entry(line).or_default().insert(endpoint.name.clone());
            }
        }
        let of = |(number, question): (usize, &Question)| {
            let protocol = match question.packet {
                Packet::Icmp => "icmp",
                Packet::Tcp(_) => "tcp",
                Packet::Udp(_) => "udp",
            };
            by_payload.get(&format!("{protocol} {}", self.payload(number))).cloned().unwrap_or_default()
        };
        questions.iter().enumerate().map(of).collect()
    }

    async fn trace(&mut self, questions: &[Question]) -> Result<Vec<BTreeSet<String>>> {
        let mut all = Vec::new();
        for question in questions {
            let from = &self.endpoints[question.from];
            let (subnet, source_mac, port) = (from.subnet.clone(), from.mac.clone(), from.port());
            // On the link if it is there, else by the router.
            let on_link = self
                .endpoints
                .iter()
                .find(|other| other.subnet == subnet && self.model.addresses(&other.name).contains(&question.to));
            let on_link = on_link.map(|other| other.mac.clone());
            let (switch, router) = self.switch(&subnet).await?;
            let destination_mac = on_link.unwrap_or(router);
            let (source, destination, packet) = (question.source, question.to, question.packet);
            all.push(Asked { switch, port, source_mac, destination_mac, source, destination, packet });
        }
        trace::outputs(self.site, &all).await
    }

    async fn end(&mut self) -> Result<()> {
        for endpoint in &mut self.endpoints {
            endpoint.remove(self.site).await?;
        }
        let limit = format!("--timeout={}s", SOON.as_secs());
        for kind in ["pods", "bmm", "vnics", "sg", "sn", "vpc"] {
            self.site.kubectl(&["delete", kind, "--all", "-n", self.namespace, &limit]).await?;
        }
        self.tunnels(GENEVE).await
    }

    /// For the judge, where it asks.
    fn report(&self, seed: u64, tested: &Result<()>) -> Result<()> {
        let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return Ok(()) };
        let error = tested.as_ref().err().map(|error| format!("{error:#}"));
        let answers = json!({
            "seed": seed, "asked": self.asked, "pairs": self.pairs.len(), "wrong": self.wrong, "error": error,
        });
        std::fs::write(folder.join("answers.json"), answers.to_string()).context("write the answers")?;
        std::fs::write(folder.join("questions.txt"), &self.transcript).context("write the questions")
    }
}
