//! The agent is killed after each of its steps with a NIC that is hot-plugged into a running machine and unplugged (docs/design/network.md, 7),
//! and started again by its kubelet. The next agent goes on with the next step; the link is never up before the port is in force, and what
//! comes of it is what comes of a NIC that nobody interrupted.

mod gate;
mod seen;

use crate::machine::{Machine, SOON};
use crate::on_servers;
use anyhow::{Result, ensure};
use gate::Gate;
use sandbox::cluster::servers::slots_socket;
use seen::Done::{self, Claimed, Connected, Link, OnHost, Port, Presented};
use seen::{Nic, Seen};
use std::collections::BTreeSet;
use tests::site::{Site, until};

const ADDED: &str = "eth1";
/// A second Subnet: the guest asks for an address of it.
const GREEN: &str = "apiVersion: metalplane.io/v1alpha1
kind: Subnet
metadata: {name: green}
spec: {cidr: 10.31.0.0/24}
";
/// What is new each time the agent is killed on the way up.
const UP: [&[Done]; 5] = [&[Claimed], &[Presented, OnHost], &[Port], &[Link], &[Connected]];
/// What no longer is, each time on the way down. A guest may have released the function by the time that somebody looks.
const DOWN: [&[Done]; 5] = [&[Link], &[Port], &[Presented], &[OnHost], &[Claimed, Connected]];
const RELEASED_AT_ONCE: [&[Done]; 4] = [&[Link], &[Port], &[Presented, OnHost], &[Claimed, Connected]];

#[test]
fn the_agent_is_killed_after_each_step_of_a_nics_way_up_and_down() {
    on_servers(&[2], "the_agent_is_killed", async |site, namespace| {
        let machine = Machine::on_second(site, namespace);
        machine.told(life(site, &machine).await).await
    });
}

async fn life(site: &Site, machine: &Machine<'_>) -> Result<()> {
    let dpu = machine.on().dpu();
    let mut gate = Gate::at(slots_socket(&machine.on().folder()))?;
    // The one that runs has its connection to the host already.
    site.kill_agent(&dpu)?;
    let boots = async {
        site.apply_in(machine.namespace, GREEN).await?;
        machine.apply().await?;
        machine.wait_ready().await
    };
    gate.open_for(boots).await?;
    let (uninterrupted, devices) = (Nic::new(machine, "eth0", &gate), site.network_devices(&dpu).await?);

    let nic = Nic::new(machine, ADDED, &gate);
    let mut walk = Walk { machine, gate, nic, done: BTreeSet::new(), kills: Vec::new() };
    walk.up().await?;
    let (whole, nic) = (uninterrupted.whole().await?, &walk.nic);
    let is_whole = async {
        until("the NIC is as one that nobody interrupted", SOON, async || {
            let now = nic.whole().await?;
            Ok(if now == whole { Ok(()) } else { Err(format!("{now:#?}, and the other is {whole:#?}")) })
        })
        .await?;
        packets_pass(machine, nic).await
    };
    walk.gate.open_for(is_whole).await?;
    walk.down().await?;

    let Walk { mut gate, nic, .. } = walk;
    let left = until("nothing is left of the NIC", SOON, async || {
        let (mut left, now) = (nic.left().await?, site.network_devices(&dpu).await?);
        left.extend(now.into_iter().filter(|device| !devices.contains(device)));
        Ok(if left.is_empty() { Ok(()) } else { Err(left.join(", ")) })
    });
    gate.open_for(left).await?;
    drop(gate);
    site.agent_is_back(&dpu, SOON).await?;
    machine.wait_ready().await
}

/// The guest is given the NIC's address by DHCP.
async fn packets_pass(machine: &Machine<'_>, nic: &Nic<'_>) -> Result<()> {
    let [mac, address] = nic.addresses().await?;
    let device = format!("d=$(grep -l {mac} /sys/class/net/*/address); d=${{d%/address}}; d=${{d##*/}}");
    let ask = format!("{device}; ip link set $d up; udhcpc -i $d -s /bin/true -t 15 -T 1 -n -q 2>&1");
    let said = machine.guest().shell(&ask, SOON).await?;
    ensure!(said.contains(&format!("lease of {address} obtained")), "the guest asked for {address}: {said}");
    Ok(())
}

struct Walk<'a> {
    machine: &'a Machine<'a>,
    gate: Gate,
    nic: Nic<'a>,
    /// When the agent was last killed.
    done: BTreeSet<Done>,
    /// What was otherwise than before, each time the agent was killed.
    kills: Vec<Vec<Done>>,
}

impl Walk<'_> {
    /// Lets the agent go on, and kills it as soon as it has done, or undone, anything; until `enough` is seen.
    async fn on(&mut self, enough: impl Fn(&Seen) -> bool) -> Result<()> {
        loop {
            let stop = self.gate.next().await?;
            let seen = self.nic.look(&self.gate).await?;
            let raises = stop.raises.as_deref();
            ensure!(
                raises.is_none() || seen.in_force,
                "the agent raises the link of {raises:?}, not in force: {seen:?}"
            );
            ensure!(!seen.has(Link) || seen.in_force, "the link is up, and the port not in force: {seen:?}");
            let news: Vec<Done> = seen.done.symmetric_difference(&self.done).copied().collect();
            if news.is_empty() {
                stop.go();
            } else {
                eprintln!("killing the agent: {:?} before, {:?} now", self.done, seen.done);
                self.machine.site.kill_agent(&self.machine.on().dpu())?;
                self.gate.dismiss(stop);
                self.kills.push(news);
                self.done.clone_from(&seen.done);
            }
            if enough(&seen) {
                return Ok(());
            }
        }
    }

    async fn up(&mut self) -> Result<()> {
        let (site, dpu) = (self.machine.site, self.machine.on().dpu());
        self.machine.bmctl(&["addinterface", self.machine.name, ADDED, "--subnet", "green"]).await?;
        self.on(|seen| seen.has(OnHost)).await?;
        // Nobody binds the port: the agent that is started behind the kill finds it, and has to wait.
        let frozen = site.freeze_process(&format!("{dpu}/ovn-controller")).await?;
        self.on(|seen| seen.has(Port) && seen.reason == "NotBound").await?;
        drop(frozen);
        self.on(|seen| seen.has(Connected)).await?;
        let kills = std::mem::take(&mut self.kills);
        ensure!(kills == UP, "on the way up the agent was killed after {kills:?}");
        Ok(())
    }

    async fn down(&mut self) -> Result<()> {
        self.machine.bmctl(&["removeinterface", self.machine.name, ADDED]).await?;
        self.on(|seen| seen.done.is_empty()).await?;
        let kills = std::mem::take(&mut self.kills);
        ensure!(kills == DOWN || kills == RELEASED_AT_ONCE, "on the way down the agent was killed after {kills:?}");
        Ok(())
    }
}
