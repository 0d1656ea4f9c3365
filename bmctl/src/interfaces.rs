//! `addinterface`, `removeinterface`.

use crate::args::{AddInterface, RemoveInterface};
use crate::change;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::wait;
use api::machine::Interface;
use api::{Named, VNic};
use kube::Api;

pub async fn add(cluster: &Cluster, args: &AddInterface) -> Result<String, Failure> {
    let vnic = match (&args.vnic, &args.subnet) {
        (Some(vnic), _) => Some(vnic.clone()),
        (None, Some(_)) => None,
        (None, None) => Some(bare_name(cluster, args).await?),
    };
    let interface = Interface {
        name: args.name.clone(),
        subnet: args.subnet.clone(),
        addresses: Some(args.address.clone()).filter(|addresses| !addresses.is_empty()),
        vnic: vnic.map(|name| Named { name }),
        ..Interface::default()
    };
    let machine = change::machine(cluster, &args.machine, &args.change, |machine| {
        if machine.spec.interfaces.iter().any(|i| i.name == args.name) {
            return Err(Failure::Told {
                object: format!("machine '{}'", args.machine),
                cause: format!("it has an interface '{}' already", args.name),
                next: format!(
                    "choose another name, or: {} removeinterface {} {}",
                    cluster.program, args.machine, args.name
                ),
            });
        }
        machine.spec.interfaces.push(interface.clone());
        Ok(())
    })
    .await?;
    wait::after(cluster, &args.machine, &args.change, &wait::Goal::InterfaceAttached(args.name.clone())).await?;
    change::report(&machine, &args.change, &format!("interface {} submitted", args.name))
}

/// `addinterface bm-02 nic0`: nic0 may be a VNic that exists.
async fn bare_name(cluster: &Cluster, args: &AddInterface) -> Result<String, Failure> {
    let vnics: Api<VNic> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let found = vnics.get_opt(&args.name).await.map_err(|e| cluster.failure(e, &args.machine))?;
    found.map(|_| args.name.clone()).ok_or_else(|| Failure::Refused {
        object: format!("interface '{}'", args.name),
        cause: format!(
            "there is no VNic '{}' in namespace '{}': give --subnet or --vnic",
            args.name, cluster.namespace
        ),
    })
}

pub async fn remove(cluster: &Cluster, args: &RemoveInterface) -> Result<String, Failure> {
    let machine = change::machine(cluster, &args.machine, &args.change, |machine| {
        let before = machine.spec.interfaces.len();
        machine.spec.interfaces.retain(|i| i.name != args.name);
        if machine.spec.interfaces.len() == before {
            let names: Vec<&str> = machine.spec.interfaces.iter().map(|i| i.name.as_str()).collect();
            return Err(Failure::Told {
                object: format!("machine '{}'", args.machine),
                cause: format!("it has no interface '{}'; it has: {}", args.name, names.join(", ")),
                next: format!("{} explain {}", cluster.program, args.machine),
            });
        }
        Ok(())
    })
    .await?;
    wait::after(cluster, &args.machine, &args.change, &wait::Goal::InterfaceGone(args.name.clone())).await?;
    change::report(&machine, &args.change, &format!("interface {} removal submitted", args.name))
}
