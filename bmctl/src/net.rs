//! `bmctl net trace`: would a packet pass, and by which rule of which object. The judgement is the planner's; here its objects are
//! read, and it is printed.

use crate::args::Trace;
use crate::cluster::Cluster;
use crate::explain::allowed;
use crate::failure::Failure;
use crate::output::structured;
use api::{BareMetalMachine, SecurityGroup, VNic};
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt};
use planner::machine::vnic_name;
use planner::network::trace::{self, End, Network, Packet, Path};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;

pub async fn trace(cluster: &Cluster, args: &Trace) -> Result<String, Failure> {
    let network = network(cluster).await?;
    let machines: Vec<BareMetalMachine> = listed(cluster).await?;
    let end = |text: &str| end(cluster, &network, &machines, text);
    let traced = trace::trace(&network, end(&args.from)?, end(&args.to)?, packet(args));
    let traced = traced.map_err(|cause| Failure::Other(anyhow::anyhow!(cause)))?;
    match args.output {
        Some(form) => Ok(structured(form.into(), &traced)?),
        None => Ok(print(&traced, cluster.program)),
    }
}

fn packet(args: &Trace) -> Packet {
    // It is exactly one of them.
    match (args.packet.icmp, args.packet.tcp, args.packet.udp) {
        (false, Some(port), _) => Packet::Tcp(port),
        (false, None, Some(port)) => Packet::Udp(port),
        _ => Packet::Icmp,
    }
}

async fn network(cluster: &Cluster) -> Result<Network, Failure> {
    Ok(Network {
        vpcs: listed(cluster).await?,
        subnets: listed(cluster).await?,
        groups: listed::<SecurityGroup>(cluster).await?.into_iter().map(Arc::new).collect(),
        vnics: listed(cluster).await?,
        gateways: listed(cluster).await?,
        floating: listed(cluster).await?,
        // They are in the DPUs' namespaces.
        attachments: allowed(cluster, Api::all(cluster.client.clone()).list(&ListParams::default()).await)?,
    })
}

async fn listed<K>(cluster: &Cluster) -> Result<Vec<K>, Failure>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    Ok(api.list(&ListParams::default()).await.map_err(|error| cluster.failure(error, ""))?.items)
}

/// An address; a VNic; a machine's interface; a machine that has one interface.
fn end<'a>(
    cluster: &Cluster,
    network: &'a Network,
    machines: &[BareMetalMachine],
    text: &str,
) -> Result<End<'a>, Failure> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(End::Address(address));
    }
    let vnic = |name: &str| network.vnics.iter().find(|vnic| vnic.name_any() == name).map(End::VNic);
    if let Some(end) = vnic(text) {
        return Ok(end);
    }
    let told = |cause: String, next: String| {
        let object = format!("'{text}' in namespace '{}'", cluster.namespace);
        Failure::Told { object, cause, next }
    };
    let (machine, interface) = text.split_once('/').map_or((text, None), |(machine, name)| (machine, Some(name)));
    let Some(machine) = machines.iter().find(|there| there.name_any() == machine) else {
        let next = format!("kubectl get vnic -n {}, or {} get", cluster.namespace, cluster.program);
        return Err(told("it is no address, no VNic and no machine".to_owned(), next));
    };
    let interfaces = &machine.spec.interfaces;
    let found = match (interface, interfaces.as_slice()) {
        (Some(name), all) => all.iter().find(|interface| interface.name == name),
        (None, [one]) => Some(one),
        (None, _) => None,
    };
    let names: Vec<String> =
        interfaces.iter().map(|interface| format!("{}/{}", machine.name_any(), interface.name)).collect();
    let Some(found) = found else {
        return Err(told("it is not one interface".to_owned(), format!("name one of: {}", names.join(", "))));
    };
    let name = vnic_name(machine, found);
    vnic(&name).ok_or_else(|| {
        told(
            format!("its VNic '{name}' does not exist yet"),
            format!("{} explain {}", cluster.program, machine.name_any()),
        )
    })
}

fn print(traced: &trace::Trace, program: &str) -> String {
    let mut text = String::new();
    for path in &traced.paths {
        text.push_str(&of_path(traced, path));
    }
    for note in &traced.notes {
        text.push_str(&format!("note: {}\n", note.replace("bmctl ", &format!("{program} "))));
    }
    text
}

fn of_path(traced: &trace::Trace, path: &Path) -> String {
    let verdict = if path.allowed { "allowed" } else { "denied" };
    let (source, destination) = (path.source, path.destination);
    let mut text = format!("{verdict}: {} from {source} to {destination}\n", traced.packet);
    for step in &path.steps {
        text.push_str(&format!("  {} {}: {}\n", if step.allowed { "pass" } else { "drop" }, step.by, step.message));
    }
    text
}

/// What a shell completes: VNics, and the interfaces of machines.
pub async fn ends(cluster: &Cluster) -> Result<Vec<String>, Failure> {
    let vnics: Vec<VNic> = listed(cluster).await?;
    let machines: Vec<BareMetalMachine> = listed(cluster).await?;
    let interfaces = machines.iter().flat_map(|machine| {
        let name = machine.name_any();
        machine.spec.interfaces.iter().map(move |interface| format!("{name}/{}", interface.name))
    });
    Ok(vnics.iter().map(ResourceExt::name_any).chain(interfaces).collect())
}
