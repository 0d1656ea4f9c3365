//! [`PodDevices`] by virtual functions of a SmartNIC in the node itself (devlink: flavour `pcivf`, not `external`), which its administrator has
//! made (`sriov_numvfs`) behind an embedded switch in switchdev mode. The representor is the switch's, the function is moved into the pod.
//!
//! - *make*: a function that is nobody's gets MAC address and MTU, and its representor the owner's name, link down.
//! - *remove*: link down, and it is nobody's. The function stays; in a pod it is useless then, and it is given to nobody else before it is back
//!   on the node.
//! - Somebody else's are left alone: a function that is up, or that has another driver than the kernel's own for networks (vfio-pci), so that
//!   the node has no network device of it.
//!
//! Which device is which function say devlink and `/sys/bus/pci`, never a name.

use crate::devlink::{Devlink, VirtualFunction, Wire};
use crate::representor::{self, Representor};
use async_trait::async_trait;
use planner::exposure::ExposureId;
use ports::emulation::NicFunction;
use ports::pod_devices::PodDevice;
use ports::{ErrorClass, PodDevices, PortError};
use rtnetlink::{Handle, LinkUnspec};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Mutex;

pub struct VirtualFunctions {
    devlink: Arc<Devlink>,
    /// Where sysfs is mounted, that of the node's network namespace.
    sysfs: PathBuf,
    /// Holding it is what makes verbs exclusive.
    turn: Mutex<()>,
}

const NONE: &str = "devlink tells of no virtual function of this node (flavour pcivf, external false). Next: devlink port show; write \
                    sriov_numvfs of the NIC's physical function, and devlink dev eswitch set pci/ADDRESS mode switchdev";

struct Function {
    representor: Representor,
    /// The pod's end, while it is on the node.
    device: Option<Representor>,
}

impl VirtualFunctions {
    pub fn new(wire: impl Wire + 'static, sysfs: &Path) -> Self {
        Self { devlink: Arc::new(Devlink::new(wire)), sysfs: sysfs.to_owned(), turn: Mutex::default() }
    }

    /// Those with a representor, in the order of physical function and number.
    async fn see(&self, handle: &Handle) -> Result<Vec<Function>, PortError> {
        let devlink = self.devlink.clone();
        let asked = tokio::task::spawn_blocking(move || devlink.virtual_functions()).await;
        let functions = asked
            .unwrap_or_else(|error| Err(PortError::new(ErrorClass::Unreachable, format!("ask devlink: {error}"))))?;
        if functions.is_empty() {
            return Err(PortError::new(ErrorClass::Unsupported, NONE));
        }
        let devices = representor::read(handle).await?;
        let named = |name: &str| devices.iter().find(|device| device.name == name).cloned();
        let function = |function: VirtualFunction| {
            let device = self.device(&function).and_then(|name| named(&name));
            Some(Function { representor: named(function.representor.as_deref()?)?, device })
        };
        Ok(functions.into_iter().filter_map(function).collect())
    }

    /// The network device of a function, as far as the node has one: sysfs shows those of the node's network namespace alone.
    fn device(&self, function: &VirtualFunction) -> Option<String> {
        let parent = self.sysfs.join("bus/pci/devices").join(&function.parent);
        let devices = std::fs::read_dir(parent.join(format!("virtfn{}/net", function.number))).ok()?;
        devices.flatten().map(|device| device.file_name().to_string_lossy().into_owned()).min()
    }
}

fn refuse<T>(class: ErrorClass, id: &ExposureId, what: &str) -> Result<T, PortError> {
    Err(PortError::new(class, format!("NIC {} epoch {}: {what}", id.uid, id.epoch)))
}

/// What the pod gets. A function of a switch in switchdev mode takes any MAC address.
async fn prepare(handle: &Handle, device: &Representor, nic: &NicFunction) -> Result<(), PortError> {
    let mac = nic.mac.split(':').map(|octet| u8::from_str_radix(octet, 16)).collect::<Result<Vec<u8>, _>>();
    let Ok(mac) = mac else {
        return refuse(
            ErrorClass::Invalid,
            &nic.id,
            &format!("MAC address {}: six octets with colons are needed", nic.mac),
        );
    };
    let change = LinkUnspec::new_with_index(device.index).address(mac).mtu(u32::from(nic.mtu)).build();
    let set = handle.link().set(change).execute().await;
    set.map_err(|error| representor::failed("set the MAC address and MTU of", &device.name, &error))
}

#[async_trait]
impl PodDevices for VirtualFunctions {
    async fn list(&self) -> Result<Vec<PodDevice>, PortError> {
        let _turn = self.turn.lock().await;
        let all = self.see(&representor::connect()?).await?;
        let ours = |function: Function| {
            let Representor { name, owner, up, .. } = function.representor;
            Some(PodDevice { id: owner?, device: name, pod_end: function.device.map(|device| device.name), up })
        };
        Ok(all.into_iter().filter_map(ours).collect())
    }

    async fn make(&self, nic: &NicFunction) -> Result<(), PortError> {
        let _turn = self.turn.lock().await;
        let handle = representor::connect()?;
        let all = self.see(&handle).await?;
        let owners = || all.iter().filter_map(|function| Some((function.representor.owner.as_ref()?, function)));
        if let Some((owner, there)) = owners().find(|(owner, _)| owner.uid == nic.id.uid) {
            let what = format!("{} has epoch {} of it", there.representor.name, owner.epoch);
            return if *owner == nic.id { Ok(()) } else { refuse(ErrorClass::Conflict, &nic.id, &what) };
        }
        let mut free = all.iter().filter(|function| function.representor.owner.is_none());
        let unused = free.find_map(|function| Some((function, function.device.as_ref().filter(|device| !device.up)?)));
        let Some((function, device)) = unused else {
            let what = format!("each of the {} virtual functions of this node is in use", all.len());
            return refuse(ErrorClass::Busy, &nic.id, &what);
        };
        function.representor.set_link(&handle, false).await?;
        prepare(&handle, device, nic).await?;
        function.representor.take(&handle, &nic.id, nic.mtu).await
    }

    async fn set_link(&self, id: &ExposureId, up: bool) -> Result<(), PortError> {
        let _turn = self.turn.lock().await;
        let handle = representor::connect()?;
        let all = self.see(&handle).await?;
        match all.iter().find(|function| function.representor.owner.as_ref() == Some(id)) {
            Some(function) if function.representor.up == up => Ok(()),
            Some(function) => function.representor.set_link(&handle, up).await,
            None => refuse(ErrorClass::NotFound, id, "no virtual function of this node is its"),
        }
    }

    async fn remove(&self, id: &ExposureId) -> Result<(), PortError> {
        let _turn = self.turn.lock().await;
        let handle = representor::connect()?;
        let all = self.see(&handle).await?;
        match all.iter().find(|function| function.representor.owner.as_ref() == Some(id)) {
            Some(function) => function.representor.release(&handle).await,
            None => Ok(()),
        }
    }

    async fn most(&self) -> Result<u32, PortError> {
        let all = self.see(&representor::connect()?).await?;
        Ok(u32::try_from(all.len()).unwrap_or(u32::MAX))
    }

    fn are_functions(&self) -> bool {
        true
    }
}
