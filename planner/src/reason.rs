//! Why nothing is done, or not yet: a closed set.
//!
//! A variant's name is the reason of a condition, the label of a metric and what `bmctl explain` looks up; its message is
//! for people and names the object; its next step, where a person can do something, is a command.

use crate::about::About;
use serde::Serialize;
use std::fmt;

macro_rules! reasons {
    ($(#[$meta:meta])* $name:ident {
        $( $variant:ident { $($field:ident: $type:ty),* } $message:literal $(, next $next:literal)?; )*
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $name { $( $variant { $($field: $type),* }, )* }

        impl $name {
            pub const NAMES: &'static [&'static str] = &[$(stringify!($variant)),*];

            /// Name, message and next step (or nothing) of each, as they are written below: for the reference.
            pub const TABLE: &'static [(&'static str, &'static str, &'static str)] =
                &[$((stringify!($variant), $message, concat!($($next)?))),*];

            pub fn name(&self) -> &'static str {
                match self { $( Self::$variant { .. } => stringify!($variant), )* }
            }

            #[allow(unused_variables)]
            pub fn message(&self) -> String {
                match self { $( Self::$variant { $($field),* } => format!($message), )* }
            }

            /// What a person can do about it.
            #[allow(unused_variables)]
            pub fn next(&self) -> Option<String> {
                match self { $( Self::$variant { $($field),* } => None$(.or_else(|| Some(format!($next))))?, )* }
            }
        }
    };
}

reasons! {
    /// Something else is under way; it goes on by itself.
    Waiting {
        HardwareTaken { hardware: String, by: String } "Hardware '{hardware}' is claimed by {by}", next "kubectl delete bmm of that machine, wait where a Dpu has it, or choose another spec.hardware";
        HardwareBusy { hardware: String, by: String } "Hardware '{hardware}' is in use by {by}, which belongs to no machine: the machine claims Hardware '{hardware}' once {by} has ended", next "kubectl get workflows,jobs.bmc.tinkerbell.org -n INVENTORY";
        AgentHasWorkflow { agent: String, workflow: String } "agent '{agent}' has Workflow '{workflow}' already: no rule set is tried";
        StartFirst { } "the machine is halted: the controller installs the machine once the machine is started", next "bmctl start NAME";
        NetbootAwaited { hardware: String, seen: String } "host '{hardware}' was powered on to boot from the network: {seen}", next "kubectl logs -n metalplane-system statefulset/metalplane-boot";
        NetbootNext { hardware: String, by: &'static str } "host '{hardware}' was powered on to boot from the network, its firmware is done, and nothing was heard of it: the controller powers it off, and asks its BMC by {by}", next "look at the console of the server; kubectl logs -n metalplane-system statefulset/metalplane-boot";
        Installing { workflow: String, action: String, at: usize, of: usize } "Workflow '{workflow}' runs action '{action}' ({at} of {of})", next "bmctl workflow logs {workflow} -n INVENTORY: how far the action is";
        AgentLost { workflow: String, message: String } "Workflow '{workflow}': {message}", next "look at the console of the server; kubectl get workflow {workflow} -n INVENTORY -o yaml";
        Erasing { hardware: String, by: String, what: String } "the controller has the disks of host '{hardware}' erased before Hardware '{hardware}' is free ({by}): {what}", next "look at the console of the server: the progress is there";
        EraserAwaited { hardware: String, dpu: String } "host '{hardware}' was powered on from the eraser that Dpu '{dpu}' presents, and the eraser has not reported yet", next "look at the console of the server; a firmware with secure boot on refuses the eraser";
        NoFreeHardware { summary: String } "no Hardware is free: {summary}", next "kubectl get hardware -A";
        HardwareHasOrphans { hardware: String, dpu: String, count: usize } "the host of Hardware '{hardware}' has {count} disks and NICs that no attachment explains: the agent of Dpu '{dpu}' keeps those disks and NICs until the BMC reports the host powered off", next "kubectl describe dpu {dpu}; power the host off, or: bmctl dpu forget {dpu} UID";
        VolumeShownElsewhere { claim: String, dpu: String, uid: String } "the host of Dpu '{dpu}' has the volume of claim '{claim}' by an attachment that no longer exists ({uid}): the claim is granted once the agent of Dpu '{dpu}' has detached that disk", next "power that host off, or: bmctl dpu forget {dpu} {uid}";
        VNicShownElsewhere { vnic: String, dpu: String, uid: String } "the host of Dpu '{dpu}' has VNic '{vnic}' by an attachment that no longer exists ({uid}): the VNic is granted once the agent of Dpu '{dpu}' has detached that NIC", next "power that host off, or: bmctl dpu forget {dpu} {uid}";
        ExposuresUnknown { dpu: String } "the API server is back in an earlier state, and what the host of Dpu '{dpu}' has been shown since is not known: the controller grants nothing on any DPU before the agent of Dpu '{dpu}' has reported, or Dpu '{dpu}' is known to be powered off", next "kubectl describe dpu {dpu}: condition ExposuresKnown says what to do";
        DpuNotHeard { dpu: String } "the controller has become the leader and has not heard the agent of Dpu '{dpu}' since: the controller grants nothing before that agent has renewed its Lease, or has not for 5 s";
        HardwareBeingDeleted { hardware: String } "Hardware '{hardware}' is being deleted";
        DpuNotReady { dpu: String, message: String } "Dpu '{dpu}' is not ready: {message}", next "kubectl describe dpu {dpu}";
        DpuNotVerified { dpu: String, message: String } "the controller does not know yet whether Dpu '{dpu}' sits in the server that its spec.hardwareRef names: {message}", next "kubectl describe dpu {dpu}";
        DpuSilent { dpu: String } "the agent of Dpu '{dpu}' does not renew its Lease", next "look at the pod of metalplane-dpu-agent on node {dpu}; if the DPU is dead: bmctl dpu get, then bmctl dpu confirm-down UID";
        DpuNotOff { dpu: String, bmc: String, message: String } "the agent of Dpu '{dpu}' does not renew its Lease, and BMC '{bmc}' does not report Dpu '{dpu}' powered off: {message}", next "if the DPU is dead, power the DPU off by BMC '{bmc}'; or: bmctl dpu get, then bmctl dpu confirm-down UID";
        DpuStarting { dpu: String } "Dpu '{dpu}' starts with its host: waiting for the agent of Dpu '{dpu}'";
        ImageNotReady { image: String, why: String } "image '{image}' is not ready: {why}", next "kubectl get mi,cmi";
        GroupSnapshotNotReady { snapshot: String } "VolumeGroupSnapshot '{snapshot}' has no snapshot of every disk", next "kubectl describe volumegroupsnapshot {snapshot}";
        SnapshotNotReady { snapshot: String } "VolumeSnapshot '{snapshot}' is not ready to use", next "kubectl describe volumesnapshot {snapshot}";
        ClaimPending { claim: String, class: String, message: String } "PersistentVolumeClaim '{claim}' (StorageClass {class}) is not bound: {message}", next "kubectl describe pvc {claim}";
        ClaimBindsLate { claim: String, node: String, message: String } "PersistentVolumeClaim '{claim}' (WaitForFirstConsumer) is not bound: its provisioner creates the volume for node '{node}': {message}", next "kubectl describe pvc {claim}";
        ClaimBeingDeleted { claim: String } "PersistentVolumeClaim '{claim}' is being deleted: waiting for its finalizers", next "kubectl describe pvc {claim}";
        ClaimExpanding { claim: String, message: String } "the CSI driver is expanding the volume of PersistentVolumeClaim '{claim}': {message}", next "kubectl describe pvc {claim}";
        VolumeInUse { claim: String, by: String } "the volume of PersistentVolumeClaim '{claim}' is used by {by}";
        VolumeHeld { claim: String, by: String } "the volume of PersistentVolumeClaim '{claim}' is held by {by}";
        VNicHeld { vnic: String, by: String } "VNic '{vnic}' is held by {by}";
        PodNicsLeaving { pod: String, count: usize, dpu: String } "the host of Dpu '{dpu}' has {count} NICs of pods that run on the machine, one of Pod '{pod}': the server is released once the agent of Dpu '{dpu}' has detached those NICs", next "kubectl get nicattachments -A; kubectl describe dpu {dpu}";
        WorkerLeaving { machine: String } "machine '{machine}', which is the pod's node, is being deleted or is moving to another server: the pod has NICs again once the machine has arrived", next "kubectl describe bmm of machine '{machine}'";
        WorkerNotPlaced { machine: String } "machine '{machine}', which is the pod's node, has no server with a DPU yet", next "kubectl describe bmm of machine '{machine}'";
        VNicReleasing { vnic: String } "VNic '{vnic}' is being released by the machine";
        VNicBeingDeleted { vnic: String } "VNic '{vnic}' is being deleted: waiting for the finalizers of VNic '{vnic}'";
        VNicNotReady { vnic: String, why: String } "VNic '{vnic}' is not ready: {why}", next "kubectl describe vnic {vnic}";
        VNicInUse { vnic: String, by: String } "VNic '{vnic}' is being deleted, and {by} uses it: waiting for {by} to release VNic '{vnic}'", next "kubectl edit bmm, and take the interface of VNic '{vnic}' out; or kubectl delete bmm of the machine";
        AddressReleasing { address: String, subnet: String, vnic: String } "address {address} of Subnet '{subnet}' is being released by VNic '{vnic}', which is being deleted or no longer exists", next "kubectl describe vnic {vnic}";
        AddressStillShared { address: String, vnic: String, by: String } "the guest of VNic '{by}' may still send from {address}, an address of VNic '{vnic}': the port of VNic '{vnic}' is bound once OVN no longer lets that guest", next "kubectl describe vnic {by}";
        AddressShownElsewhere { address: String, dpu: String, uid: String } "the host of Dpu '{dpu}' has address {address} by an attachment that no longer exists ({uid}): the address is assigned once the agent of Dpu '{dpu}' has detached that NIC", next "power that host off, or: bmctl dpu forget {dpu} {uid}";
        SubnetInUse { subnet: String, by: String } "Subnet '{subnet}' is being deleted, and addresses of Subnet '{subnet}' are in use by {by}: waiting for their release", next "kubectl get vnic,bmm; delete those machines and VNics, or let them run: Subnet '{subnet}' is deleted after the last of them";
        SubnetNotReady { subnet: String, message: String } "Subnet '{subnet}' is not ready: {message}", next "kubectl describe subnet {subnet}";
        VpcNotReady { vpc: String, message: String } "Vpc '{vpc}' is not ready: {message}", next "kubectl describe vpc {vpc}";
        VpcInUse { vpc: String, by: String } "Vpc '{vpc}' is being deleted, and {by} is in it: waiting for the deletion of {by}", next "kubectl get subnets,sg";
        ProviderNetworkNotReady { network: String, message: String } "ProviderNetwork '{network}' is not ready: {message}", next "kubectl describe pn {network}";
        ProviderNetworkInUse { network: String, by: String } "ProviderNetwork '{network}' is being deleted, and {by} has an address of ProviderNetwork '{network}': waiting for the deletion of {by}", next "kubectl get natgateways,floatingips -A";
        NatGatewayNotReady { gateway: String, message: String } "NatGateway '{gateway}' is not ready: {message}", next "kubectl describe ngw {gateway}";
        NatGatewayInUse { gateway: String, by: String } "NatGateway '{gateway}' is being deleted, and {by} is reached by NatGateway '{gateway}': waiting for the deletion of {by}", next "kubectl get floatingips";
        SecurityGroupInUse { group: String, by: String } "SecurityGroup '{group}' is being deleted, and {by} is in it: waiting until {by} names another group, or is deleted", next "kubectl get vnic";
        NorthBoundUnreachable { message: String } "the controller cannot write OVN's north-bound database: {message}", next "look whether its ovsdb-server runs at the address of the controller's --ovn-nb";
        SouthBoundUnreachable { message: String } "the controller cannot read OVN's south-bound database, so whether the chassis have installed the rows is not known: {message}", next "look whether its ovsdb-server runs at the address of the controller's --ovn-sb";
        NotInForce { what: String } "the chassis are installing {what}: older rules may still be in force";
        ChassisUnresponsive { reached: usize, all: usize, chassis: String } "{reached} of {all} chassis; chassis {chassis} unresponsive: older rules may still be in force there", next "look whether ovn-controller runs on those nodes, and reaches the south-bound database; if all chassis are unresponsive, whether ovn-northd runs";
        NotHeld { vnic: String } "no machine and no pod has VNic '{vnic}'";
        NotBound { vnic: String, dpu: String, attachment: String } "the agent of Dpu '{dpu}' has not said that the port of VNic '{vnic}' works (NicAttachment {attachment})", next "kubectl describe nicattachment {attachment}";
        ChassisUnknown { dpu: String } "the agent of Dpu '{dpu}' has not reported the name of its chassis", next "on node {dpu}: ovs-vsctl get Open_vSwitch . external_ids:system-id";
        HolderPodStarting { pod: String, node: String, message: String } "holder pod '{pod}' does not run on node '{node}' yet: {message}", next "kubectl describe pod {pod}";
        Creating { what: About } "the controller is creating {what}";
        Granting { what: About, message: String } "the controller is granting {what}{message}";
        Releasing { what: About } "the controller is releasing {what}";
        Deleting { what: About } "waiting for the deletion of {what}";
        HolderPodTerminating { pod: String } "waiting for pod '{pod}' to terminate", next "kubectl describe pod {pod}";
        Attaching { what: About, dpu: String, message: String } "the agent of Dpu '{dpu}' is attaching {what}{message}";
        Limiting { disk: String, limits: String, dpu: String, message: String } "the agent of Dpu '{dpu}' is setting the I/O limits {limits} of disk '{disk}'{message}", next "kubectl describe dpu {dpu}";
        ModifyingVolume { claim: String, class: String, message: String } "the volume of claim '{claim}' does not have VolumeAttributesClass '{class}' yet{message}", next "kubectl describe pvc {claim}";
        Detaching { what: About, dpu: String } "the agent of Dpu '{dpu}' is detaching {what}";
        Fencing { disk: String, dpu: String, message: String } "the agent of Dpu '{dpu}' is unresponsive: the controller tells the storage of disk '{disk}' to refuse Dpu '{dpu}'{message}", next "kubectl describe dpu {dpu}";
        HostStillOn { hardware: String } "host '{hardware}' was powered on when the machine claimed Hardware '{hardware}': the controller powers host '{hardware}' off before a disk is attached to that host";
        HostLeftOn { hardware: String } "the BMC does not report host '{hardware}' powered off, and the machine on host '{hardware}' was deleted without releasing its disks and NICs", next "power host '{hardware}' off";
        PoweredOnByOther { hardware: String } "somebody has powered host '{hardware}' on while it was presented the hold disk, by which the boot option of its DPU is looked for: the controller takes that disk away, and gives the server back, once the BMC reports host '{hardware}' powered off", next "power host '{hardware}' off";
        HostUnknown { dpu: String } "a machine that was deleted has disks or NICs on Dpu '{dpu}', and no Hardware names the BMC that could report the host of Dpu '{dpu}' powered off", next "kubectl describe dpu {dpu}";
        HostInPost { hardware: String } "host '{hardware}' is in POST, in which nothing is hot-plugged: the controller grants the disks and interfaces that were added once POST is over, or 20 min after the power-on", next "look at the host's console by its BMC";
        BmcReading { hardware: String } "the controller is reading the BMC of '{hardware}'";
        AttachmentsFirst { } "the controller powers the host on once every disk and interface is attached";
        BootOptionAwaited { hardware: String } "the firmware of '{hardware}' has not listed the boot disk of the DPU yet: the controller starts the host into its firmware setup, so that the firmware sees the disk, waits until the BMC lists the disk (20 min at most, 40 min while the BMC reports POST), and starts the host from the disk", next "look at the host's console by its BMC";
        BootOrderSetting { hardware: String } "the controller is setting the boot order of '{hardware}'";
        MediumChanging { hardware: String, change: String } "the controller tells the BMC of '{hardware}' to {change}, for the boot of the installer from its virtual CD drive";
        BootOrderRefused { hardware: String, message: String } "the BMC of '{hardware}' refuses a boot order now, as many BMCs do while their host is in POST: {message}", next "wait; if the BMC refuses for longer than a start of the server takes, look at the job queue and the event log of that BMC";
        PoweringOn { hardware: String } "the controller has sent power-on to the BMC of '{hardware}'";
        Resetting { hardware: String } "the controller has sent a warm reset to the BMC of '{hardware}'";
        GuestPoweredOff { attempt: u32, seconds: i64 } "the guest powered the host off; the controller sends power-on number {attempt} in {seconds} s", next "bmctl stop, if it shall stay off";
        ShuttingDown { hardware: String, seconds: i64 } "the controller has asked the guest of '{hardware}' to power off, and forces the power off in {seconds} s";
        PoweringOff { hardware: String } "the controller has sent power-off to the BMC of '{hardware}'";
        GuestSilent { interface: String } "the guest has not answered on interface '{interface}' yet", next "look at the host's console by its BMC, to see what the guest does";
        SystemSilent { hardware: String } "the boot service has not heard of the system on host '{hardware}' since its last start: by DHCP, by a request for metadata or by a line of syslog", next "look at the console of the server; a system whose address is not from the boot service and that sends no syslog is never heard of";
        Moving { from: String, to: String, why: String } "the machine moves from Hardware '{from}' to Hardware '{to}': {why}";
        Arriving { machine: String, why: String } "BareMetalMachine '{machine}' is on its new Hardware, and not ready yet: {why}", next "bmctl explain {machine}";
        TooLateToCancel { from: String, to: String } "the disks are detached from Hardware '{from}' already: the machine moves on to Hardware '{to}', and the MachineMigration is deleted after that";
        OperationFirst { operation: String } "{operation} is under way: the controller starts the machine once {operation} is over", next "kubectl get machinesnapshots,machinerestores,machinemigrations";
        MachineSnapshotNotReady { snapshot: String } "MachineSnapshot '{snapshot}' is not ready", next "kubectl describe machinesnapshot {snapshot}";
        MachineBusy { machine: String, operation: String } "BareMetalMachine '{machine}' is locked by {operation}", next "wait until {operation} is over, or delete {operation}";
        VolumeReleasing { volume: String } "the controller is releasing the hold on volume '{volume}'";
    }
}

reasons! {
    /// Somebody has to change something.
    Blocked {
        Paused { } "the annotation metalplane.io/paused is set: the controller writes nothing to the BMC or the DPU", next "kubectl annotate bmm NAME metalplane.io/paused-";
        ServerLeftOn { hardware: String } "a Workflow has installed the machine on the server of Hardware '{hardware}', Hardware '{hardware}' no longer exists, and so the controller knows no BMC by which to power that server off: the deletion goes on once Hardware '{hardware}' is there again", next "kubectl apply -f the Hardware '{hardware}' again, without the annotations of its claim; where the server no longer exists: kubectl annotate bmm NAME metalplane.io/server-given-up={hardware}";
        HardwareMissing { hardware: String } "there is no Hardware '{hardware}' in the inventory", next "kubectl get hardware -A";
        NoPolicy { hardware: String, namespace: String } "no HardwarePolicy lets namespace '{namespace}' claim Hardware '{hardware}'", next "kubectl get hardwarepolicies -A";
        NoHardwareFits { summary: String } "no Hardware fits: {summary}", next "kubectl get hardware -A --show-labels";
        HardwareHasNoBmc { hardware: String } "Hardware '{hardware}' has no spec.bmcRef to a bmc.tinkerbell.org Machine", next "kubectl edit hardware {hardware} -n INVENTORY, and write spec.bmcRef with the name of its bmc.tinkerbell.org Machine";
        HardwareHasNoDpu { hardware: String } "no Dpu has spec.hardwareRef.name: {hardware}", next "kubectl patch dpu NODE --type merge -p '{{\"spec\":{{\"hardwareRef\":{{\"name\":\"{hardware}\"}}}}}}'";
        HardwareMismatch { dpu: String, message: String } "Dpu '{dpu}' does not sit in the server that its spec.hardwareRef names: {message}", next "kubectl edit dpu {dpu}, so that hardwareRef names the right server; or correct the bmcRef of that Hardware";
        DpuNotApproved { dpu: String } "Dpu '{dpu}' is not approved", next "kubectl patch dpu {dpu} --type merge -p '{{\"spec\":{{\"approved\":true}}}}'";
        DpuInMaintenance { dpu: String } "Dpu '{dpu}' is in maintenance: the controller places no machine there", next "when the maintenance is over: kubectl patch dpu {dpu} --type merge -p '{{\"spec\":{{\"maintenance\":\"None\"}}}}'";
        HostInMaintenance { dpu: String } "Dpu '{dpu}' is in maintenance: the controller starts no machine there until the maintenance is over; the machine may be migrated", next "bmctl migrate NAME";
        DpuTooSmall { dpu: String, message: String } "Dpu '{dpu}' has no room for this machine: {message}", next "kubectl edit bmm NAME, and take disks or interfaces out; what the DPU can present: kubectl get dpu {dpu} -o jsonpath='{{.status.capacity}}'";
        DpuLacksBus { disk: String, bus: String, dpu: String, there: String } "disk '{disk}' asks for bus {bus}: Dpu '{dpu}' presents disks on {there} only", next "kubectl edit bmm NAME, take disk '{disk}' out, and add it again with bus: {there}; buses of all DPUs: kubectl get dpu -o custom-columns=DPU:.metadata.name,BUSES:.status.buses";
        ChassisTaken { dpu: String, chassis: String, by: String } "the agent of Dpu '{dpu}' reports chassis '{chassis}', which Dpu '{by}' has: OVN takes both nodes for one", next "on node {dpu}: write another name into external_ids:system-id of Open vSwitch (and /etc/openvswitch/system-id.conf), and restart ovn-controller; all names: kubectl get dpus -o custom-columns=DPU:.metadata.name,CHASSIS:.status.network.chassis";
        PhysicalNetworkUnmapped { physical_network: String, subnet: String, dpu: String } "Subnet '{subnet}' is on physical network '{physical_network}', which the chassis of Dpu '{dpu}' does not map to a bridge", next "on node {dpu}: ovs-vsctl get Open_vSwitch . external_ids:ovn-bridge-mappings, and add '{physical_network}:BRIDGE'; or choose another server: kubectl edit bmm NAME";
        ImageMissing { image: String } "there is no {image}", next "kubectl get mi,cmi";
        SnapshotMissing { snapshot: String } "there is no VolumeSnapshot '{snapshot}' in this namespace", next "kubectl get volumesnapshots";
        ClaimMissing { claim: String } "there is no PersistentVolumeClaim '{claim}' in this namespace", next "kubectl get pvc";
        ClaimNotOurs { claim: String } "PersistentVolumeClaim '{claim}' exists but was not made for this machine", next "name PersistentVolumeClaim '{claim}' in source.persistentVolumeClaim, or: kubectl delete pvc {claim}";
        ClaimDeletedInUse { claim: String, disk: String, volume: String } "PersistentVolumeClaim '{claim}' of disk '{disk}' was deleted while the machine uses it: unless PersistentVolume '{volume}' has persistentVolumeReclaimPolicy Retain, the data of the disk will be destroyed when the disk is taken out of spec.disks or the machine is deleted", next "to keep the data: kubectl patch pv {volume} -p '{{\"spec\":{{\"persistentVolumeReclaimPolicy\":\"Retain\"}}}}'";
        ClaimNotBlock { claim: String } "PersistentVolumeClaim '{claim}' must have volumeMode: Block", next "kubectl edit bmm NAME, take the disk out, and add a disk with another name whose claim has volumeMode: Block";
        ClaimLost { claim: String } "PersistentVolumeClaim '{claim}' has lost its PersistentVolume", next "kubectl describe pvc {claim}";
        VolumeNotCsi { claim: String } "the volume of PersistentVolumeClaim '{claim}' is not a CSI volume", next "kubectl edit bmm NAME, take the disk out, and add a disk with another name whose claim is of a CSI driver's StorageClass: kubectl get storageclass";
        VolumeTooSmall { disk: String, asked: String, needed: String } "disk '{disk}': size {asked} is below the {needed} of its source", next "kubectl edit bmm NAME, and write size: {needed} or more at disk '{disk}'";
        NoConnector { claim: String, driver: String, dpu: String } "Dpu '{dpu}' cannot connect volumes of CSI driver '{driver}' (PersistentVolumeClaim '{claim}')", next "kubectl get dpu {dpu} -o jsonpath='{{.status.connectors}}'";
        UnknownVolumeAttribute { claim: String, driver: String, dpu: String, message: String } "the agent of Dpu '{dpu}' cannot connect the volume of PersistentVolumeClaim '{claim}' (CSI driver '{driver}'): {message}; and Dpu '{dpu}' has no kubelet that could connect the volume", next "kubectl get dpu {dpu} -o jsonpath='{{.status.connectors}}'";
        HolderPodLost { pod: String, disk: String } "holder pod '{pod}' of disk '{disk}' no longer exists, and kubelet has disconnected the volume: disk '{disk}' is attached again once the host is powered off", next "bmctl stop NAME && bmctl start NAME";
        SubnetMissing { subnet: String } "there is no Subnet '{subnet}' in this namespace", next "kubectl get subnets";
        MetadataDisabled { subnets: String } "cloudInit.source is Metadata, and no Subnet of the machine's interfaces ({subnets}) has spec.metadata: Enabled: nobody would tell the guest its cloud-init data", next "kubectl edit bmm NAME, and add an interface in a Subnet with metadata: Enabled; or create the machine with cloudInit.source: Disk";
        SubnetBeingDeleted { subnet: String } "Subnet '{subnet}' is being deleted: no VNic gets an address of Subnet '{subnet}' any more", next "kubectl describe subnet {subnet}; name another Subnet: kubectl get subnets";
        GatewayTaken { address: String, subnet: String, vnic: String } "VNic '{vnic}' has address {address}, which the router of Subnet '{subnet}' needs", next "kubectl delete vnic {vnic} (or the machine that uses VNic '{vnic}'); or, where no router is needed: kubectl patch subnet {subnet} --type merge -p '{{\"spec\":{{\"routed\":false}}}}'";
        VpcMissing { vpc: String } "there is no Vpc '{vpc}' in this namespace", next "kubectl get vpc";
        VpcBeingDeleted { vpc: String } "Vpc '{vpc}' is being deleted: no Subnet gets into Vpc '{vpc}' any more", next "kubectl describe vpc {vpc}";
        CidrOverlaps { cidr: String, vpc: String, other: String, others: String } "{cidr} overlaps {others} of Subnet '{other}' in Vpc '{vpc}'", next "kubectl delete this Subnet, and create it with another cidr or in another Vpc; or: kubectl delete subnet {other}";
        PodNetworksInvalid { pod: String, message: String } "Pod '{pod}' asks for NICs in a way that cannot be read: {message}", next "kubectl delete pod {pod}, and create it with that annotation as it should be (of a workload: in its template)";
        NoAgentForPods { node: String } "Node '{node}' has no agent that gives NICs to pods, and no machine says that it is this node", next "kubectl get dpu {node}; set cni.enabled in the chart's values, and let the DaemonSet metalplane-node-agent run on node {node}. If a machine is the node: write spec.nodeName: {node} into the machine";
        NodeNotOfMachine { node: String, machine: String, expected: String, provider_id: String } "machine '{machine}' says that it is node '{node}' (spec.nodeName), and Node '{node}' says '{provider_id}' (spec.providerID): a pod on node '{node}' gets a NIC once Node '{node}' says '{expected}'", next "run its kubelet with --provider-id={expected}; a Node keeps the ID that it has: kubectl delete node {node}, and let the kubelet register node {node} again";
        NetworkDefinitionMissing { namespace: String, name: String } "there is no NetworkAttachmentDefinition '{namespace}/{name}'", next "kubectl get network-attachment-definitions -n {namespace}";
        SecurityGroupMissing { group: String } "there is no SecurityGroup '{group}' in this namespace", next "kubectl get sg";
        GroupOfOtherVpc { group: String, vpc: String } "SecurityGroup '{group}' is of another Vpc than '{vpc}'", next "kubectl get sg: name a SecurityGroup of Vpc '{vpc}'";
        TooManyFlows { group: String, flows: u64, limit: u64 } "the rules of SecurityGroup '{group}' would be {flows} flows for each member on its chassis, more than {limit}: the earlier rules stay in force", next "kubectl edit sg {group}: fewer peers and ports per rule, or one cidr in place of many peers";
        AddressOutsideSubnet { address: String, subnet: String, cidr: String } "address {address} is not in {cidr} of Subnet '{subnet}'", next "kubectl delete this VNic, and create it with an address of {cidr}; of a machine's interface: kubectl edit bmm, take the interface out, and add it again with an address of {cidr}";
        AddressReserved { address: String, subnet: String, what: String } "address {address} is the {what} of Subnet '{subnet}'", next "kubectl delete this VNic, and create it with another address than {address}; of a machine's interface: kubectl edit bmm, take the interface out, and add it again with another address";
        SubnetFull { subnet: String, cidr: String } "Subnet '{subnet}' has no free address in {cidr}", next "kubectl get vnic, and delete a VNic or machine that is not needed: its address is given on; or name another Subnet: kubectl get subnets";
        AddressTaken { address: String, subnet: String, vnic: String } "address {address} of Subnet '{subnet}' belongs to VNic '{vnic}'", next "kubectl delete vnic {vnic} (or the machine that uses VNic '{vnic}'), or create this VNic with another address than {address}";
        AllowedAddressInSubnet { address: String, subnet: String, own: String } "{address} of spec.allowedAddresses is in Subnet '{subnet}' of its Vpc, and is not an address of a VNic of Subnet '{own}': the guest may not send from {address}", next "kubectl edit vnic, and take {address} out of spec.allowedAddresses; for a virtual IP: kubectl apply a VNic in Subnet '{own}' with addresses: [{address}] that no machine uses";
        AllowedAddressTaken { address: String, vnic: String, dpu: String } "{address} of spec.allowedAddresses is an address of VNic '{vnic}', which is bound to the chassis of Dpu '{dpu}': the guest may not send from {address}", next "kubectl edit vnic, and take {address} out of spec.allowedAddresses; or take VNic '{vnic}' out of its machine; of a VNic with spec.nodeName: kubectl delete vnic {vnic}";
        NextHopUnreachable { destination: String, hop: String, vpc: String } "next hop {hop} of the route to {destination} is in no Subnet of Vpc '{vpc}' that is routed: the router does not use this next hop", next "kubectl edit vpc {vpc}, and name an address of a VNic in spec.routes[].nextHops: kubectl get vnic";
        NextHopMissing { destination: String, hop: String, subnet: String } "next hop {hop} of the route to {destination} is no VNic's address in Subnet '{subnet}': the router does not use this next hop", next "create a VNic in Subnet '{subnet}' with addresses: [{hop}], or name an address of another VNic: kubectl get vnic";
        RouteInSubnet { destination: String, vpc: String, subnet: String } "the route to {destination} is inside Subnet '{subnet}' of Vpc '{vpc}', whose VNics are reached directly: the router does not have this route", next "kubectl edit vpc {vpc}, and take the route out of spec.routes";
        MacTaken { mac: String, subnet: String, vnic: String } "MAC address {mac} in Subnet '{subnet}' belongs to VNic '{vnic}'", next "kubectl delete vnic {vnic} (or the machine that uses VNic '{vnic}'), or create this VNic with another macAddress than {mac}";
        ProviderNetworkMissing { network: String } "there is no ProviderNetwork '{network}'", next "kubectl get providernetworks";
        ProviderNetworkBeingDeleted { network: String } "ProviderNetwork '{network}' is being deleted: nothing gets an address of ProviderNetwork '{network}' any more", next "name another ProviderNetwork: kubectl get providernetworks";
        ProviderNetworkOverlaps { network: String, other: String, cidr: String } "ProviderNetwork '{other}', which was there first, has {cidr} in the same VLAN: '{network}' gives nobody an address", next "delete one of the two: kubectl get providernetwork {network} {other} -o yaml";
        ProviderNetworkTaken { network: String, subnet: String } "Subnet {subnet} is on ProviderNetwork '{network}', and a ProviderNetwork has one Subnet", next "name another ProviderNetwork (kubectl get providernetworks), or create the VNics in that Subnet";
        CidrNotOfProviderNetwork { cidr: String, network: String, has: String } "{cidr} is not the network of ProviderNetwork '{network}', which is {has}", next "kubectl delete this Subnet, and create it with cidr and ipv6Cidr of: kubectl get pn {network} -o yaml";
        ProviderNotAllowed { network: String, namespace: String } "namespace '{namespace}' does not have the labels that spec.allowedNamespaces of ProviderNetwork '{network}' asks for", next "ask an administrator: kubectl get pn {network} -o yaml, and kubectl label namespace {namespace}";
        ProviderNetworkFull { network: String, family: String } "ProviderNetwork '{network}' has no free {family} address", next "kubectl get natgateways,floatingips -A, and delete an object that is not needed; or add a range to spec.addresses: kubectl edit pn {network}";
        ExternalAddressTaken { address: String, network: String, by: String } "address {address} of ProviderNetwork '{network}' belongs to {by}", next "kubectl get natgateways,floatingips -A, and create this object with another address than {address}";
        ExternalAddressOutside { address: String, network: String } "address {address} is not among spec.addresses of ProviderNetwork '{network}'", next "kubectl get pn {network} -o yaml, and create this object with an address of spec.addresses";
        NoGatewayNode { network: String, nodes: String } "no gateway node of ProviderNetwork '{network}' carries gateways: {nodes}", next "kubectl get dpus (an agent reports its chassis), and on the nodes: ovs-vsctl get Open_vSwitch . external_ids:ovn-bridge-mappings; or name other nodes in spec.gatewayNodes: kubectl edit pn {network}";
        GatewayNodeUnused { network: String, nodes: String } "gateway nodes of ProviderNetwork '{network}' carry no gateway: {nodes}", next "mend those nodes, or name other nodes in spec.gatewayNodes: kubectl edit pn {network}";
        VpcHasNatGateway { vpc: String, gateway: String } "Vpc '{vpc}' has NatGateway '{gateway}' already, which is older", next "kubectl delete ngw {gateway}, or delete this NatGateway";
        NatGatewayMissing { vpc: String, network: String } "Vpc '{vpc}' has no NatGateway to ProviderNetwork '{network}'", next "kubectl get natgateways, and create one of Vpc '{vpc}'";
        AddressFamilyMissing { vnic: String, address: String } "VNic '{vnic}' has no address of the family of {address}", next "kubectl get vnic {vnic} -o yaml, and create a FloatingIP with an address of the other family than {address}";
        VNicMissing { vnic: String } "there is no VNic '{vnic}' in this namespace", next "kubectl get vnic";
        VNicOfNode { vnic: String, node: String } "VNic '{vnic}' is of node '{node}' (spec.nodeName): no machine, and no pod of another node, may use VNic '{vnic}'", next "kubectl get vnic: name a VNic without nodeName";
        VNicNotOurs { vnic: String } "VNic '{vnic}' exists but was not made for this machine", next "name VNic '{vnic}' in interfaces[].vnic, or: kubectl delete vnic {vnic}";
        SecretMissing { secret: String, key: String } "Secret '{secret}' with key '{key}' is not in this namespace", next "kubectl get secret {secret}";
        BmcMissing { hardware: String, message: String } "the BMC of '{hardware}' cannot be used: {message}", next "kubectl get hardware -A --field-selector metadata.name={hardware} -o jsonpath='{{.items[*].spec.bmcRef}}', then kubectl describe machines.bmc.tinkerbell.org -A";
        BmcProtocolUnsupported { hardware: String, machine: String, protocol: String } "the BMC of '{hardware}' cannot be used: bmc.tinkerbell.org Machine '{machine}' asks for {protocol}, which is not supported yet", next "if that BMC speaks Redfish: kubectl edit machines.bmc.tinkerbell.org {machine} -n INVENTORY, and write spec.connection.providerOptions.preferredOrder: [gofish]";
        BmcUnauthorized { hardware: String, message: String } "the BMC of '{hardware}' refused the login: {message}; the controller reads a changed Secret at once", next "kubectl get hardware -A --field-selector metadata.name={hardware} -o jsonpath='{{.items[*].spec.bmcRef}}', then kubectl edit the Secret that this Machine's spec.connection.authSecretRef names";
        BootOptionNotListed { hardware: String, dpu: String, disk: String, options: String } "the controller finds no boot option of '{hardware}' that is the boot disk of Dpu '{dpu}' ({disk}); a firmware lists a disk once the firmware has seen the disk in a POST. The BMC shows: {options}", next "start the server once into its firmware setup while the disk is presented; if the disk is in the list: kubectl annotate hardware {hardware} -n INVENTORY metalplane.io/boot-option=REFERENCE";
        BootOptionAmbiguous { hardware: String, dpu: String, rule: &'static str, options: String } "several boot options of '{hardware}' are the boot disk of Dpu '{dpu}' by {rule}: {options}", next "kubectl annotate hardware {hardware} -n INVENTORY metalplane.io/boot-option=REFERENCE";
        BootOptionUnknown { hardware: String, named: String, options: String } "the annotation metalplane.io/boot-option of '{hardware}' names '{named}', and not exactly one boot option has that reference or name. The BMC shows: {options}", next "kubectl annotate hardware {hardware} -n INVENTORY --overwrite metalplane.io/boot-option=REFERENCE";
        BootOrderUnsupported { hardware: String, lacks: String } "the BMC of '{hardware}' has no {lacks}: the host cannot be told to boot from its DPU", next "update the firmware of that BMC, or choose another spec.hardware; if the server has no other disk than its DPU's, and its BMC takes a continuous boot source override: kubectl annotate hardware {hardware} -n INVENTORY metalplane.io/boot-option=Hdd";
        PowerActionUnsupported { hardware: String, action: String } "the BMC of '{hardware}' has no {action}", next "kubectl get hardware -A --field-selector metadata.name={hardware} -o jsonpath='{{.items[*].spec.bmcRef}}', then update the firmware of that BMC";
        ExpandNeedsStop { claim: String, message: String } "the CSI driver expands PersistentVolumeClaim '{claim}' only while no host has its volume: a machine that is stopped releases the volume until the volume is expanded; the CSI driver says: {message}", next "bmctl stop NAME, and bmctl start NAME once PersistentVolumeClaim '{claim}' is expanded";
        ClassMissing { claim: String, class: String } "VolumeAttributesClass '{class}' of PersistentVolumeClaim '{claim}' does not exist: the disk keeps its present I/O limits", next "kubectl get volumeattributesclasses";
        ClassNotUnderstood { claim: String, class: String, message: String } "VolumeAttributesClass '{class}' of PersistentVolumeClaim '{claim}' has no I/O limits: {message}; the disk keeps its present I/O limits", next "kubectl describe volumeattributesclass {class}";
        LimitsUnsupported { disk: String, limits: String, dpu: String, message: String } "disk '{disk}' has no I/O limits, although its VolumeAttributesClass asks for {limits}: Dpu '{dpu}' does not support them: {message}", next "kubectl edit bmm NAME, and write another volumeAttributesClassName at disk '{disk}'";
        ResizeNeedsPowerCycle { disk: String } "the host sees the new size of disk '{disk}' after its next power cycle", next "bmctl stop NAME && bmctl start NAME";
        MachineMissing { machine: String } "there is no BareMetalMachine '{machine}' in this namespace", next "kubectl get bmm";
        SeveralDisksRun { machine: String, disks: String, why: String } "BareMetalMachine '{machine}' runs with several disks ({disks}), and no VolumeGroupSnapshot can be taken of these disks: {why}. Stop the machine, or write consistency: PerDisk", next "bmctl stop {machine}";
        HardwarePinned { machine: String, hardware: String } "BareMetalMachine '{machine}' is bound to Hardware '{hardware}' by its spec.hardware.name: a MachineMigration has to name its target", next "bmctl migrate {machine} --to HARDWARE";
        NotPlaced { machine: String } "BareMetalMachine '{machine}' has no Hardware to leave", next "bmctl explain {machine}";
        MachineRuns { machine: String } "BareMetalMachine '{machine}' is not stopped", next "bmctl stop {machine}";
        MachineSnapshotMissing { snapshot: String } "there is no MachineSnapshot '{snapshot}' in this namespace", next "kubectl get machinesnapshots";
        SnapshotOfAnother { snapshot: String, of: String, machine: String } "MachineSnapshot '{snapshot}' is of BareMetalMachine '{of}', not of BareMetalMachine '{machine}'", next "bmctl snapshot list {machine}";
        NothingToRestore { snapshot: String, machine: String } "MachineSnapshot '{snapshot}' has no disk that BareMetalMachine '{machine}' has", next "kubectl get machinesnapshot {snapshot} -o jsonpath='{{.status.disks[*].name}}'";
        GroupSnapshotNotOurs { snapshot: String } "VolumeGroupSnapshot '{snapshot}' exists but was not made for this MachineSnapshot", next "give the MachineSnapshot another name, or: kubectl delete volumegroupsnapshot {snapshot}";
        SnapshotNotOurs { snapshot: String } "VolumeSnapshot '{snapshot}' exists but was not made for this MachineSnapshot", next "give the MachineSnapshot another name, or: kubectl delete volumesnapshot {snapshot}";
        LocalDiskTooSmall { hardware: String, size: String, bytes: u64, disks: String } "spec.disks[0].size asks for {size} ({bytes} bytes), and no local disk of Hardware '{hardware}' has that size: in bytes, {disks}", next "kubectl edit bmm NAME, and choose another server by spec.hardware; or delete the machine, and create it with a smaller spec.disks[0].size; where the disks of the server were exchanged since: kubectl delete hwr {hardware} -n INVENTORY";
        NeedsDpu { hardware: String, what: String } "Hardware '{hardware}' has no DPU, and the machine asks for what only a DPU gives: {what}", next "kubectl get dpu, and choose a server with a DPU by spec.hardware; or delete the machine, and create it with boot.strategy: Workflow";
        DpuUnassigned { hardware: String, dpu: String } "Dpu '{dpu}' has no spec.hardwareRef, and may sit in Hardware '{hardware}': the controller installs no machine with boot.strategy: Auto there", next "kubectl edit dpu {dpu}, and write spec.hardwareRef; or create the machine with boot.strategy: Workflow";
        HardwareHasDpu { hardware: String, dpu: String } "Dpu '{dpu}' is in the server of Hardware '{hardware}': a machine with boot.strategy: Workflow takes such a server only by name", next "kubectl delete bmm NAME, and create it with spec.hardware.name: {hardware}, or with boot.strategy: CloudDisk";
        HardwareNotApproved { hardware: String } "Hardware '{hardware}' was discovered, and no administrator has approved it", next "bmctl hardware approve {hardware} --bmc MACHINE";
        TooManyUnapproved { count: usize } "{count} discovered servers wait for approval: the controller makes no Hardware of a further server before one of those is approved or deleted", next "bmctl hardware get; then bmctl hardware approve HARDWARE, or kubectl delete hardware HARDWARE -n INVENTORY";
        FieldsNotServed { hardware: String, fields: String } "Hardware '{hardware}': {fields}", next "kubectl edit hardware {hardware} -n INVENTORY";
        AgentOfOther { agent: String, hardware: String } "agent '{agent}' reports a MAC address of Hardware '{hardware}', which does not name the one that it has booted by: no Hardware is made of it, for two with one MAC address would both be answered no more", next "kubectl edit hardware {hardware} -n INVENTORY, and write the other spec.interfaces[].dhcp.mac";
        HardwareWrittenDown { hardware: String, other: String } "Hardware '{other}' was written down and names the same server: Hardware '{hardware}', which was discovered, counts for nothing", next "kubectl delete hardware {hardware} -n INVENTORY";
        NoRuleMatches { sets: usize, unreadable: String } "no rule of {sets} WorkflowRuleSets matches what the agent reports{unreadable}", next "kubectl get hwr -n INVENTORY -o yaml: status.attributes is what the rules are tried on";
        RuleSetIncomplete { set: String, message: String } "WorkflowRuleSet '{set}' matches, and no Workflow can be made by it: {message}", next "kubectl edit workflowruleset {set} -n INVENTORY";
        HardwareHadDpu { hardware: String, dpu: String } "Dpu '{dpu}' was assigned to Hardware '{hardware}' (annotation metalplane.io/had-dpu), and no Dpu names Hardware '{hardware}' now: the controller installs no machine with boot.strategy: Auto there, for that DPU may come back", next "kubectl get dpus, and write spec.hardwareRef of that Dpu; where the DPU was taken out of the server: kubectl annotate hardware {hardware} -n INVENTORY metalplane.io/had-dpu-";
        NoNetbootInterface { hardware: String } "Hardware '{hardware}' has no interface with dhcp.mac that DHCP answers on: it cannot boot from the network", next "kubectl edit hardware {hardware} -n INVENTORY, and write spec.interfaces[].dhcp.mac";
        WrongServerBooted { hardware: String, told: String, expected: String } "the server that booted from the network is not that of Hardware '{hardware}': its firmware says the UUID {told}, the BMC of Hardware '{hardware}' says {expected}; nothing is written", next "kubectl edit hardware {hardware} -n INVENTORY, and mend spec.interfaces[].dhcp.mac or spec.bmcRef; where the BMC tells another UUID than the firmware: kubectl annotate hardware {hardware} -n INVENTORY metalplane.io/firmware-uuid={told}";
        SameMacAddress { hardware: String, mac: String, names: String, other: String } "{names} have MAC address '{mac}', and boot answers no server by a MAC address that two have: host '{hardware}' cannot boot from the network", next "kubectl edit hardware {other} -n INVENTORY, and mend spec.interfaces[].dhcp.mac there or in Hardware '{hardware}'";
        DhcpRefused { hardware: String, mac: String, at: String, why: String } "host '{hardware}' asked for an address by MAC address '{mac}' at {at}, and boot did not answer: {why}", next "kubectl edit hardware {hardware} -n INVENTORY, and mend the interface of MAC address '{mac}'; then start the server again (of a machine: bmctl stop NAME && bmctl start NAME)";
        DhcpPoolFull { hardware: String, mac: String, at: String, why: String } "host '{hardware}' asked for an address by MAC address '{mac}' at {at}, and boot had none to give: {why}", next "kubectl edit hardware {hardware} -n INVENTORY, and write dhcp.ip of MAC address '{mac}', or write a longer range in boot.dhcpPools of the chart; then start the server again (of a machine: bmctl stop NAME && bmctl start NAME)";
        DhcpAddressInUse { hardware: String, mac: String, at: String, address: String } "host '{hardware}' (MAC address '{mac}') declined address {address} at {at}: another device on that network has address {address}", next "look which device answers for address {address}, or kubectl edit hardware {hardware} -n INVENTORY, and write another dhcp.ip of MAC address '{mac}'; then start the server again (of a machine: bmctl stop NAME && bmctl start NAME)";
        ForeignDhcp { hardware: String, mac: String, at: String, server: String, address: String } "host '{hardware}' (MAC address '{mac}') took address {address} of DHCP server {server} at {at}: DHCP server {server} is not boot, so host '{hardware}' gets no boot program from boot", next "switch DHCP server {server} off on that network, or write Proxy in boot.dhcp or boot.dhcpSubnets of the chart; then start the server again (of a machine: bmctl stop NAME && bmctl start NAME)";
        NoBootProgram { hardware: String, mac: String, at: String, why: String } "host '{hardware}' asked to boot from the network by MAC address '{mac}' at {at}, and boot has no boot program for host '{hardware}': {why}", next "write a boot program for that firmware in boot.programs and boot.architectures of the chart, or kubectl edit hardware {hardware} -n INVENTORY, and write netboot.ipxe.binary; then start the server again (of a machine: bmctl stop NAME && bmctl start NAME)";
        NetbootUnsupported { hardware: String, allowed: String } "the BMC of '{hardware}' cannot be told to boot from the network: as boot source override it takes {allowed}, and it has no order of boot options with one of the NIC in dhcp.mac", next "kubectl get hardware -A --field-selector metadata.name={hardware} -o jsonpath='{{.items[*].spec.bmcRef}}', then update the firmware of that BMC; or, where that BMC has a virtual CD drive, name the installer's ISO in boot.iso.virtualMedia of the chart";
        EraseNotServed { hardware: String, policy: String, why: String } "HardwarePolicy '{policy}' has localDisks: Erase, and the disks of Hardware '{hardware}' cannot be erased: {why}", next "update the DPU's agent; or kubectl edit hardwarepolicy {policy} -n INVENTORY, and write localDisks: Keep; or, where a machine is to give Hardware '{hardware}' back as it is: bmctl hardware release {hardware} --with-data";
        TemplateMissing { template: String } "there is no Template '{template}' in this namespace", next "kubectl get templates.tinkerbell.org";
        TemplateNotRendered { template: String, message: String } "Template '{template}' cannot be rendered for this machine: {message}", next "kubectl edit template {template}";
        InstallRecordLost { number: u32, what: String } "installation {number} was begun, and {what}: how far installation {number} came is not known, so the controller does not repeat that installation", next "bmctl reinstall NAME, which writes the disks that the Template names once more";
        NoCloudDisks { machine: String } "BareMetalMachine '{machine}' runs from the local disk of its server: migration, snapshot and restore are for cloud disks", next "kubectl delete this object; a machine with cloud disks has boot.strategy: CloudDisk: kubectl get bmm";
        HostPowerCycleNeeded { disk: String } "the DPU has attached disk '{disk}' again after a failure, and the running host sees disk '{disk}' only after a power cycle", next "bmctl stop NAME && bmctl start NAME";
        BootDiskUnread { hardware: String, disk: String, minutes: i64 } "host '{hardware}' answers, and has not read its boot disk '{disk}' once in the {minutes} minutes after it was powered on: what runs there was not started from disk '{disk}'", next "look at the console and the boot options of the server; then: bmctl restart NAME";
        LeftInSetup { hardware: String, minutes: i64 } "host '{hardware}' is in the setup of its firmware {minutes} minutes after its BMC accepted the reset that was to start host '{hardware}' from its boot disk: the BMC did not reset host '{hardware}', or somebody has opened the setup", next "look at the console of the server, and leave the setup there; or, where the DPU has standby power: bmctl stop NAME && bmctl start NAME";
        DpuRestarted { dpu: String } "Dpu '{dpu}' restarted while the host was running", next "bmctl restart NAME";
    }
}

reasons! {
    /// It was tried and did not work; it is tried again with back-off.
    Failed {
        BmcUnreachable { hardware: String, message: String } "the BMC of '{hardware}' does not answer: {message}", next "kubectl get hardware -A --field-selector metadata.name={hardware} -o jsonpath='{{.items[*].spec.bmcRef}}', then check the address and the network of that BMC";
        BmcFailed { hardware: String, message: String } "the BMC of '{hardware}' failed: {message}", next "kubectl get hardware -A --field-selector metadata.name={hardware} -o jsonpath='{{.items[*].spec.bmcRef}}', then look at the event log of that BMC";
        PowerNotTaken { hardware: String, action: String, attempts: u32 } "the controller sent {action} to the BMC of '{hardware}' {attempts} times, and the BMC still reports another power state", next "kubectl get hardware -A --field-selector metadata.name={hardware} -o jsonpath='{{.items[*].spec.bmcRef}}', then look at the event log of that BMC";
        BootedElsewhere { hardware: String } "host '{hardware}' was powered on, did not read its boot disk once while it could have booted, and was powered off: its firmware booted another disk, or none", next "look at the boot options of the server, and at its console while it starts; then: bmctl restart NAME";
        MediumNotTaken { hardware: String, change: String, shown: String } "the BMC of '{hardware}' accepted to {change}, and shows {shown}", next "look whether that BMC reaches the address of boot (boot.iso.virtualMedia of the chart), and at its event log; kubectl logs -n metalplane-system statefulset/metalplane-boot";
        BootOrderNotTaken { hardware: String } "the BMC of '{hardware}' accepted the boot order, and still reports another boot order", next "kubectl annotate hardware {hardware} -n INVENTORY metalplane.io/boot-option=OPTION";
        NetbootNotTaken { hardware: String, seen: String } "host '{hardware}' was powered on to boot from the network, and nothing has come of that for 20 minutes: {seen}", next "kubectl logs -n metalplane-system statefulset/metalplane-boot, and look at the console of the server; then: bmctl stop NAME && bmctl start NAME";
        EraseIncomplete { hardware: String, message: String } "not every disk of Hardware '{hardware}' is shown to be erased, and Hardware '{hardware}' stays claimed: {message}", next "bmctl hardware erase {hardware}, to try once more; or bmctl hardware release {hardware} --with-data, to take Hardware '{hardware}' with what is on its disks";
        InstallerStays { hardware: String, resets: u32 } "the installation of host '{hardware}' has ended, and the installer still runs on host '{hardware}': the controller has reset the host {resets} times, and leaves the host as it is", next "look at the boot options and the console of the server; then: bmctl stop NAME && bmctl start NAME";
        InstallerLost { workflow: String, action: String } "the agent has not begun action '{action}' of Workflow '{workflow}' within 20 minutes", next "look at the console of the server; then: bmctl stop NAME && bmctl start NAME";
        InstallFailed { workflow: String, message: String } "Workflow '{workflow}' has ended without having installed the machine: {message}; the host is left on", next "kubectl get workflow {workflow} -n INVENTORY -o yaml; then: bmctl reinstall NAME";
        GroupSnapshotFailed { snapshot: String, message: String } "VolumeGroupSnapshot '{snapshot}' failed: {message}", next "kubectl describe volumegroupsnapshot {snapshot}; bmctl stop MACHINE if the disks are written without a pause";
        SnapshotFailed { snapshot: String, message: String } "VolumeSnapshot '{snapshot}' failed: {message}", next "kubectl describe volumesnapshot {snapshot}";
        MachineDeleted { machine: String } "BareMetalMachine '{machine}' was deleted meanwhile", next "kubectl get machinesnapshots,machinerestores,machinemigrations, and delete the one of '{machine}'";
        NotTakenInTime { seconds: i64, message: String } "not every VolumeSnapshot was taken within {seconds} s: {message}", next "kubectl get machinesnapshots, delete this one, then bmctl snapshot create MACHINE";
        AttachFailed { what: About, dpu: String, message: String } "the agent of Dpu '{dpu}' cannot attach {what}: {message}", next "kubectl describe dpu {dpu}";
    }
}

/// Any of the three.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    Waiting(Waiting),
    Blocked(Blocked),
    Failed(Failed),
}

impl Reason {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Waiting(reason) => reason.name(),
            Self::Blocked(reason) => reason.name(),
            Self::Failed(reason) => reason.name(),
        }
    }

    pub fn message(&self) -> String {
        match self {
            Self::Waiting(reason) => reason.message(),
            Self::Blocked(reason) => reason.message(),
            Self::Failed(reason) => reason.message(),
        }
    }

    pub fn next(&self) -> Option<String> {
        match self {
            Self::Waiting(reason) => reason.next(),
            Self::Blocked(reason) => reason.next(),
            Self::Failed(reason) => reason.next(),
        }
    }

    /// For who reads it in the object alone: the message, and the next step behind it.
    pub fn told(&self) -> String {
        match self.next() {
            Some(next) => format!("{}. Next: {next}", self.message()),
            None => self.message(),
        }
    }

    /// [`Reason::told`] where it is about this machine: `NAME` in the next step is its name.
    pub fn told_of(&self, machine: &str) -> String {
        match self.next() {
            Some(next) => format!("{}. Next: {}", self.message(), next.replace("NAME", machine)),
            None => self.message(),
        }
    }

    pub fn kind(&self) -> ReasonKind {
        match self {
            Self::Waiting(_) => ReasonKind::Waiting,
            Self::Blocked(_) => ReasonKind::Blocked,
            Self::Failed(_) => ReasonKind::Failed,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ReasonKind {
    Waiting,
    Blocked,
    Failed,
}

/// The kind of a reason that stands in a condition.
pub fn kind_of(name: &str) -> Option<ReasonKind> {
    [(ReasonKind::Waiting, Waiting::NAMES), (ReasonKind::Blocked, Blocked::NAMES), (ReasonKind::Failed, Failed::NAMES)]
        .into_iter()
        .find(|(_, names)| names.contains(&name))
        .map(|(kind, _)| kind)
}

impl From<Waiting> for Reason {
    fn from(reason: Waiting) -> Self {
        Self::Waiting(reason)
    }
}

impl From<Blocked> for Reason {
    fn from(reason: Blocked) -> Self {
        Self::Blocked(reason)
    }
}

impl From<Failed> for Reason {
    fn from(reason: Failed) -> Self {
        Self::Failed(reason)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), self.message())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_tells_the_message_and_the_next_step_with_the_name_of_the_machine() {
        let failed: Reason =
            Failed::SnapshotFailed { snapshot: "golden".to_owned(), message: "no space".to_owned() }.into();
        let told = "VolumeSnapshot 'golden' failed: no space. Next: kubectl describe volumesnapshot golden";
        assert_eq!(failed.told(), told);
        let restarted: Reason = Blocked::DpuRestarted { dpu: "dpu-1".to_owned() }.into();
        assert!(restarted.told_of("bm-01").ends_with(". Next: bmctl restart bm-01"), "{}", restarted.told_of("bm-01"));
        let silent: Reason = Waiting::HardwareBeingDeleted { hardware: "NAME".to_owned() }.into();
        assert_eq!(silent.told_of("bm-01"), silent.message(), "only the command has a place for the name");
    }

    /// It waits for somebody, so it says what to type; `NAME` becomes the machine's name and stands alone.
    #[test]
    fn every_blocked_and_failed_reason_has_a_next_command() {
        let tables = || Blocked::TABLE.iter().chain(Failed::TABLE);
        let commands = ["kubectl ", "bmctl "];
        let without: Vec<&str> = tables()
            .filter(|(_, _, next)| !commands.iter().any(|command| next.contains(command)))
            .map(|(name, _, _)| *name)
            .collect();
        assert_eq!(without, Vec::<&str>::new());
        for (name, _, next) in Waiting::TABLE.iter().chain(tables()) {
            let words = next.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
            let joined = words.filter(|word| word.contains("NAME") && *word != "NAME").collect::<Vec<_>>();
            assert_eq!(joined, Vec::<&str>::new(), "{name}");
        }
    }
}
