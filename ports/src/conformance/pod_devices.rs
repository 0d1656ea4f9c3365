//! What every [`PodDevices`] promises, run on a [`Bench`] that the driver's test provides. It starts and ends with nothing of ours.

use crate::emulation::NicFunction;
use crate::pod_devices::PodDevice;
use crate::{ErrorClass, PodDevices};
use async_trait::async_trait;
use planner::exposure::ExposureId;

#[async_trait]
pub trait Bench: Send + Sync {
    /// A new handle on the same node, as after a restart of the agent.
    async fn open(&self) -> Box<dyn PodDevices>;

    /// Moves a device into the network namespace of a pod.
    async fn move_away(&self, device: &str);

    /// The pod, and what is in its network namespace, is no more.
    async fn end_pod(&self);

    /// Makes a device of somebody else; where devices are found, somebody else uses all that there are.
    async fn foreign_device(&self, name: &str);

    /// Whether the pod's end with this name has that MAC address, and sends no packet whose checksum is left to the hardware.
    async fn is_prepared(&self, pod_end: &str, mac: &str) -> bool;

    /// The devices are found, not made: they have names of their own, and stay when their pod ends.
    fn device_stays(&self) -> bool {
        false
    }
}

fn nic(uid: &str, epoch: u64, device: &str) -> NicFunction {
    let id = ExposureId { uid: uid.to_owned(), epoch };
    NicFunction { id, mac: "02:00:00:00:20:07".to_owned(), mtu: 1442, device: device.to_owned() }
}

async fn only(port: &dyn PodDevices) -> PodDevice {
    let mut all = port.list().await.expect("list");
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

async fn class_of_make(port: &dyn PodDevices, nic: &NicFunction) -> Option<ErrorClass> {
    port.make(nic).await.err().map(|error| error.class)
}

/// Panics at the first promise that is not kept.
pub async fn suite(bench: &impl Bench) {
    let port = bench.open().await;
    assert_eq!(port.list().await.expect("list"), [], "the suite needs a node with nothing of ours");
    let first = nic("one", 1, "mpsuite1");
    assert_eq!(port.set_link(&first.id, true).await.expect_err("not there").class, ErrorClass::NotFound);

    port.make(&first).await.expect("make");
    let made = only(port.as_ref()).await;
    assert_eq!((&made.id, made.up), (&first.id, false));
    assert!(bench.device_stays() || made.device == "mpsuite1", "{made:?}");
    assert_eq!(port.are_functions(), bench.device_stays());
    assert!(port.most().await.expect("how many") >= 2);
    let pod_end = made.pod_end.clone().expect("both ends are here");
    assert!(bench.is_prepared(&pod_end, &first.mac).await, "MAC address and checksums of {pod_end}");
    port.make(&first).await.expect("again");
    assert_eq!(class_of_make(port.as_ref(), &nic("one", 2, "mpsuite1")).await, Some(ErrorClass::Conflict));

    port.set_link(&first.id, true).await.expect("up");
    port.set_link(&first.id, true).await.expect("up again");
    bench.move_away(&pod_end).await;
    // As a restarted agent finds it.
    let port = bench.open().await;
    let moved = only(port.as_ref()).await;
    assert_eq!((&moved.id, moved.pod_end.as_deref(), moved.up), (&first.id, None, true));
    port.set_link(&first.id, false).await.expect("down");
    assert!(!only(port.as_ref()).await.up);

    port.remove(&first.id).await.expect("remove, with the other end in a pod");
    assert_eq!(port.list().await.expect("list"), []);
    port.remove(&first.id).await.expect("not there: done");

    port.make(&first).await.expect("made anew");
    let pod_end = only(port.as_ref()).await.pod_end.expect("here");
    bench.move_away(&pod_end).await;
    bench.end_pod().await;
    if bench.device_stays() {
        assert!(only(port.as_ref()).await.pod_end.is_some(), "it is back on the node");
        port.remove(&first.id).await.expect("remove");
    }
    assert_eq!(port.list().await.expect("list"), [], "it goes with its pod");

    bench.foreign_device("mpsuite2").await;
    let refused = if bench.device_stays() { ErrorClass::Busy } else { ErrorClass::Conflict };
    assert_eq!(class_of_make(port.as_ref(), &nic("two", 1, "mpsuite2")).await, Some(refused));
    assert_eq!(port.list().await.expect("list"), [], "it is somebody else's");
}
