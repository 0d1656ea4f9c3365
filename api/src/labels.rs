//! Labels, annotations, finalizers and other fixed words on objects.

pub const GROUP: &str = "metalplane.io";

pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
pub const MANAGED_BY_VALUE: &str = "metalplane";
/// On everything that is created for a machine: its name.
pub const MACHINE: &str = "metalplane.io/machine";
/// On everything that is created for a machine: its UID.
pub const MACHINE_UID: &str = "metalplane.io/machine-uid";

/// On a pod that asks for NICs, beside its cluster network: which (JSON). The same word is the label by which the controller watches
/// such pods.
pub const NETWORKS: &str = "metalplane.io/networks";
/// On a pod, instead of `NETWORKS`: the Subnet of its one NIC.
pub const SUBNET: &str = "metalplane.io/subnet";
/// On everything that is created for a pod: its name.
pub const POD: &str = "metalplane.io/pod";
/// On everything that is created for a pod: its UID.
pub const POD_UID: &str = "metalplane.io/pod-uid";
/// On a pod whose node is a machine: its NICs, once their functions are in force at the machine (JSON, a list of `PodNic`).
pub const NETWORK_STATUS: &str = "metalplane.io/network-status";
/// On the NicAttachment of a pod whose node is a machine: that machine, NAMESPACE/NAME.
pub const WORKER: &str = "metalplane.io/worker";
/// On the NicAttachment of a pod whose node is a machine: the UID of that machine.
pub const WORKER_UID: &str = "metalplane.io/worker-uid";

/// On a BareMetalMachine: nothing is written to its BMC and DPU while set.
pub const PAUSED: &str = "metalplane.io/paused";
/// On a BareMetalMachine: an RFC 3339 time; a later one than the last restart asks for one warm reset.
pub const RESTART_REQUESTED_AT: &str = "metalplane.io/restart-requested-at";
/// On a BareMetalMachine with `runStrategy: Manual`: `On` or `Off`.
pub const POWER_REQUESTED: &str = "metalplane.io/power-requested";
/// On a Hardware: the UID of the machine that has it, or of its Dpu while that looks for its boot option. Set and removed by compare-and-swap.
pub const CLAIMED_BY: &str = "metalplane.io/claimed-by";
/// On a Hardware: `namespace/name` of that machine, for people.
pub const CLAIMED_BY_NAME: &str = "metalplane.io/claimed-by-name";
/// On a Hardware, beside the claim and in the same write: CloudDisk or Workflow, or [`DISCOVERY`]. Without it: CloudDisk.
pub const BOOT_STRATEGY: &str = "metalplane.io/boot-strategy";
/// Of a claim by a Dpu, to find its boot option.
pub const DISCOVERY: &str = "Discovery";
/// On a Hardware that is claimed as Workflow: `NUMBER/Begun/UID` or `NUMBER/Done/UID`, the installation and its Workflow. The server
/// may boot the installer while it says Begun, and at no other time.
pub const INSTALL: &str = "metalplane.io/install";
/// On the same Hardware: the request (`REINSTALL_REQUESTED_AT`) that this installation carries out.
pub const INSTALL_REQUEST: &str = "metalplane.io/install-request";
/// On a BareMetalMachine that a workflow installs: a time; another one than that of the last installation asks for one more.
pub const REINSTALL_REQUESTED_AT: &str = "metalplane.io/reinstall-requested-at";
/// On a BareMetalMachine that is being deleted, by an administrator: the name of its Hardware, which no longer exists and does not come back. The
/// machine goes although nobody can power its server off.
pub const SERVER_GIVEN_UP: &str = "metalplane.io/server-given-up";
/// On a Hardware, beside the claim and in the same write: Erase, if the server's own disks are erased before the server is
/// free.
pub const LOCAL_DISKS: &str = "metalplane.io/local-disks";
/// On a Hardware that is claimed as Workflow: the disks that the installer saw (JSON).
pub const DISKS_SEEN: &str = "metalplane.io/disks-seen";
/// On a claimed Hardware: `NUMBER/Begun/UID`, `NUMBER/Done/UID` or `NUMBER/WithData/UID`: how far the erasing of its disks
/// is, and its Workflow; with a DPU, the DiskAttachment of the eraser. Once it is there no installation runs any more.
pub const ERASE: &str = "metalplane.io/erase";
/// On a Hardware: what became of its disks when it was last given back (JSON). It stays until the next claim.
pub const ERASE_REPORT: &str = "metalplane.io/erase-report";
/// On a Hardware, by an administrator: an erasing that failed is tried once more. It goes when that one begins.
pub const ERASE_REQUESTED_AT: &str = "metalplane.io/erase-requested-at";
/// On a Hardware whose machine no longer exists: the power actions that erasing took (JSON), as a machine's status has them.
pub const ERASE_POWER: &str = "metalplane.io/erase-power";
/// On a Hardware that is claimed as Workflow: the UUID of the server, as its BMC tells it.
pub const SYSTEM_UUID: &str = "metalplane.io/system-uuid";
/// On a Hardware, by an administrator: the UUID that the firmware of the server tells, where its BMC tells another one.
pub const FIRMWARE_UUID: &str = "metalplane.io/firmware-uuid";
/// On a Hardware, by an administrator: the UID of the machine that has it, which gives it back with what is on its disks.
pub const RELEASE_WITH_DATA: &str = "metalplane.io/release-with-data";
/// On a Hardware: the UID of the Job (bmc.tinkerbell.org) that commands its BMC. Set and removed by compare-and-swap; while that Job
/// has not ended no machine claims the server.
pub const JOB: &str = "metalplane.io/job";
/// On a Hardware: the boot order that was there before the claim, comma-separated; put back at release.
pub const BOOT_ORDER_BEFORE: &str = "metalplane.io/boot-order-before";
/// On a Hardware: the device path by which its DPU's boot disk was found, and what that rests on.
pub const BOOT_PATH: &str = "metalplane.io/boot-path";
/// On a Hardware: how its DPU's boot option was looked for when the server joined, and what came of it (JSON). Once it is taken off, and no boot path is on
/// record, the option is looked for again.
pub const BOOT_DISCOVERY: &str = "metalplane.io/boot-discovery";
/// On a Hardware without a DPU: by what its BMC was asked when the server last booted from the network, where that was not an override for one boot:
/// Continuous, BootOption or VirtualMedia.
pub const NETBOOT_BY: &str = "metalplane.io/netboot-by";
/// On a Hardware, by the controller: the name of the first Dpu that was seen to name it. It stays when that Dpu is assigned elsewhere or deleted,
/// until an administrator takes it off: on such a server `boot.strategy: Auto` installs nothing.
pub const HAD_DPU: &str = "metalplane.io/had-dpu";
/// On a Hardware that was made of what an agent reported, a label (Tinkerbell's).
pub const AUTO_DISCOVERED: &str = "tinkerbell.org/auto-discovered";
/// On such a Hardware, a label, until an administrator approves it: nobody may claim it.
pub const UNAPPROVED: &str = "metalplane.io/unapproved";
/// On a Workflow that a WorkflowRuleSet asked for, a label (Tinkerbell's).
pub const AUTO_ENROLLMENT: &str = "tinkerbell.org/auto-enrollment";
/// On a Hardware, and on a Workflow whose rule set says so: what the agent reported of its server (JSON; Tinkerbell's).
pub const AGENT_ATTRIBUTES: &str = "tinkerbell.org/agent-attributes";
/// Tinkerbell's Cluster API provider owns the Hardware: counts as taken.
pub const TINKERBELL_OWNER: &str = "v1alpha1.tinkerbell.org/ownerName";

/// On PersistentVolumeClaims, a label, while a VolumeGroupSnapshot is taken of their volumes: the UID of the MachineSnapshot.
pub const GROUP_SNAPSHOT: &str = "metalplane.io/group-snapshot";

/// On a BareMetalMachine: hardware, attachments and volumes are released before it goes.
pub const FINALIZER_MACHINE: &str = "metalplane.io/machine";
/// On a DiskAttachment or NicAttachment: the DPU no longer presents it.
pub const FINALIZER_EXPOSED: &str = "metalplane.io/exposed";
/// On a PersistentVolumeClaim: attached to a machine. On a VNic: it has addresses, or is attached. On a Subnet: VNics have addresses
/// of it. On a Dpu: something may be attached there.
pub const FINALIZER_IN_USE: &str = "metalplane.io/in-use";
/// On a MachineImage: an import is under way or clones start from its snapshot.
pub const FINALIZER_IMAGE: &str = "metalplane.io/image";

/// Our own CSI driver, whose VolumeAttributesClasses are [`crate::Limits`].
pub const CSI_DRIVER: &str = "csi.metalplane.io";

/// Field managers of server-side apply.
pub const CONTROLLER: &str = "metalplane-controller";
pub const AGENT: &str = "metalplane-dpu-agent";
/// On an agent's Lease: how often the agent has renewed it.
pub const BEAT: &str = "metalplane.io/beat";
/// On an agent's Lease: how often the agent has found that the API server forgot renewals which it had confirmed.
pub const WENT_BACK: &str = "metalplane.io/went-back";
/// On an agent's Lease: how often the host has read the disk in its boot slot, as `RUN/UID.EPOCH/COUNT`: one run of the agent, the
/// DiskAttachment and the epoch of its grant, and operations since it was presented. Not there where nobody counts.
pub const BOOT_DISK_READS: &str = "metalplane.io/boot-disk-reads";

/// The attacher of the VolumeAttachments that the controller makes itself: nobody serves it.
pub const NATIVE_ATTACHER: &str = "native.metalplane.io";
/// The node label that the agent's DaemonSet selects: a kubelet may not set it on its own Node.
pub const DPU_NODE: &str = "node-restriction.kubernetes.io/metalplane-dpu";

/// Prefix of an annotation on a PersistentVolumeClaim or VNic; the rest is the UID of a machine that uses it. The finalizer
/// `metalplane.io/in-use` stays until the last one is gone, and on a VNic until its addresses are released after that.
pub const IN_USE_BY: &str = "in-use.metalplane.io/";
/// On a PersistentVolumeClaim whose StorageClass binds late: the node for which the volume is made (Kubernetes' own).
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On the same claim: when the controller said so. A provisioner that cannot do it takes the node away again.
pub const NODE_SELECTED_AT: &str = "metalplane.io/node-selected-at";
/// On a holder pod: what admission policies know it by.
pub const HOLDER_POD: &str = "metalplane.io/holder-pod";
/// On a holder pod: the UID of the DiskAttachment that it is for.
pub const ATTACHMENT_UID: &str = "metalplane.io/attachment-uid";
/// On a VolumeHold: the VolumeAttachment that keeps its PersistentVolume.
pub const VOLUME_ATTACHMENT: &str = "metalplane.io/volume-attachment";
/// On a Hardware, by an administrator: the reference or display name of the boot option of the DPU's boot disk, where nothing
/// identifies the disk; or `Hdd`: whatever disk the firmware takes first.
pub const BOOT_OPTION: &str = "metalplane.io/boot-option";
/// On everything that is created for an image: its UID.
pub const IMAGE_UID: &str = "metalplane.io/image-uid";
/// On a DPU's namespace, its Lease and roles: the Dpu.
pub const DPU: &str = "metalplane.io/dpu";
/// The taint by which an administrator says that a node is shut down (Kubernetes' own).
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// On a BareMetalMachine, by the controller: the operation that has it, as `KIND/NAME/UID`. Set by compare-and-swap.
pub const OPERATION: &str = "metalplane.io/operation";
/// Prefix of an annotation on a BareMetalMachine, by the controller; the rest is a disk's name, the value the claim that is
/// behind it since a restore.
pub const CLAIM: &str = "claim.metalplane.io/";
/// On a Hardware that a machine has claimed to move to: the UID of the migration.
pub const CLAIMED_FOR: &str = "metalplane.io/claimed-for";
/// On a MachineSnapshot, MachineRestore or MachineMigration: what it holds or made is given back before it goes.
pub const FINALIZER_OPERATION: &str = "metalplane.io/operation";
/// On everything that is created for an operation: its UID.
pub const OPERATION_UID: &str = "metalplane.io/operation-uid";
