//! What `--help` says beyond the flags: examples of each verb, exit codes, and the name that the user called us by.

use crate::args::Cli;
use clap::{Command, CommandFactory};

const TOP: &str = "Examples:
  bmctl get                      the machines of this namespace
  bmctl explain bm-01            why it is not ready, and what to do
  bmctl stop bm-01 --wait        power it off, and wait until it is
  bmctl adddisk bm-01 data --size 10Gi

Exit codes: 0 done, 1 failed or refused, 2 wrong usage, 124 timed out (--wait).
Completion: source <(bmctl completion bash)";

/// By the verb's words.
const EXAMPLES: &[(&[&str], &str)] = &[
    (&["get"], "  bmctl get\n  bmctl get -A -o wide\n  bmctl get bm-01 -o yaml\n  bmctl get -l tier=web -o name"),
    (&["explain"], "  bmctl explain bm-01\n  bmctl explain bm-01 -o json"),
    (&["timeline"], "  bmctl timeline bm-01"),
    (&["start"], "  bmctl start bm-01\n  bmctl start bm-01 bm-02 --wait --timeout 5m"),
    (&["stop"], "  bmctl stop bm-01\n  bmctl stop bm-01 --wait\n  bmctl stop bm-01 --dry-run -o yaml"),
    (&["restart"], "  bmctl restart bm-01 --wait"),
    (&["reinstall"], "  bmctl reinstall bm-03\n  bmctl reinstall bm-03 --yes --wait --timeout 1h"),
    (
        &["adddisk"],
        "  bmctl adddisk bm-01 data --size 10Gi\n  bmctl adddisk bm-01 data --size 10Gi --storage-class fast --bus VirtioBlk --wait\n  bmctl adddisk bm-01 data --claim my-claim",
    ),
    (&["removedisk"], "  bmctl removedisk bm-01 data --wait"),
    (
        &["addinterface"],
        "  bmctl addinterface bm-01 eth1 --subnet blue --address 10.20.0.8\n  bmctl addinterface bm-01 eth1 --vnic shared-nic\n  bmctl addinterface bm-01 shared-nic      the same, with the VNic's own name",
    ),
    (&["removeinterface"], "  bmctl removeinterface bm-01 eth1"),
    (&["dpu", "get"], "  bmctl dpu get"),
    (
        &["dpu", "confirm-down"],
        "  kubectl taint node dpu-1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute\n  bmctl dpu get\n  bmctl dpu confirm-down 0d7e1f52-6b1c-4f0e-9d5c-3f2b8a7c1e55",
    ),
    (&["dpu", "forget"], "  kubectl describe dpu dpu-1\n  bmctl dpu forget dpu-1 0d7e1f52-6b1c-4f0e-9d5c-3f2b8a7c1e55"),
    (
        &["dpu", "report"],
        "  bmctl dpu report dpu-1 --bmc https://192.0.2.7 --bmc-user reader --bmc-password-file pw --phase before\n  bmctl dpu report            on the DPU itself",
    ),
    (
        &["hardware", "get"],
        "  bmctl hardware get\n  bmctl hardware get rack1-u03        its disks and NICs; what was erased, by which method, and how it was checked",
    ),
    (
        &["hardware", "approve"],
        "  bmctl hardware approve discovery-52-54-00-88-00-07 --bmc rack1-u07\n  bmctl hardware approve discovery-52-54-00-88-00-07 --bmc rack1-u07 --serial-number J1234567",
    ),
    (&["hardware", "erase"], "  bmctl hardware erase rack1-u03"),
    (&["hardware", "release"], "  bmctl hardware release rack1-u03 --with-data"),
    (
        &["workflow", "get"],
        "  bmctl workflow get\n  bmctl workflow get bm-03-1        its actions, and what it waits for",
    ),
    (&["workflow", "logs"], "  bmctl workflow logs bm-03-1\n  bmctl workflow logs bm-03-1 --action image"),
    (
        &["net", "trace"],
        "  bmctl net trace bm-01 bm-02 --tcp 443\n  bmctl net trace bm-01/eth0 10.20.0.9 --icmp\n  bmctl net trace 10.20.0.9 my-vnic --udp 53 -o json",
    ),
    (
        &["completion"],
        "  source <(bmctl completion bash)                    in ~/.bashrc\n  source <(bmctl completion zsh)                     in ~/.zshrc\n  bmctl completion fish | source                     in ~/.config/fish/config.fish\n  bmctl completion kubectl > /usr/local/bin/kubectl_complete-bm && chmod +x /usr/local/bin/kubectl_complete-bm",
    ),
    (&["version"], "  bmctl version\n  bmctl version --client"),
];

const WAITING: &str =
    "With --wait: wait on at a reason on which somebody has to act (Blocked), or at which the controller tries again
(Failed), for such a reason may pass; bmctl prints each new reason with the next command. Exit code 124: timed out.";

const CONFIRM: &str =
    "A DPU whose agent is unresponsive may still write: the DPU's volumes move to another DPU only on proof that the DPU is
down. This command is your word for that, good for the boot that the DPU last reported; your word counts together with
the taint on the DPU's node. If the DPU still runs, two writers destroy the volumes.";

const FORGET: &str =
    "An orphan is a disk or NIC that the host was shown and that no attachment explains any more, for instance after etcd
was restored. The agent keeps an orphan until the BMC reports the host powered off. With this command the host loses
the orphan at once.";

const ERASE: &str =
    "A server whose policy says localDisks: Erase stays claimed until each of its disks is shown to be erased. What
failed, or was not found, is not tried again by itself: put it right, then give this command.";

const RELEASE: &str =
    "The server is free with whatever its disks hold, for the next machine to read. That stays on record at
the Hardware until that machine claims it, and an Event tells of it.";

/// The command line, with everything in it called by `program`: `bmctl` or `kubectl bm`.
pub fn command(program: &'static str) -> Command {
    let mut command = Cli::command().bin_name(program).after_help(named(TOP, program));
    for (words, examples) in EXAMPLES.iter().chain(crate::verbs::EXAMPLES) {
        command = described(command, words, &|verb| {
            let waits = verb.get_arguments().any(|argument| argument.get_id() == "wait");
            let more = match *words {
                ["dpu", "confirm-down"] => format!("\n\n{CONFIRM}"),
                ["dpu", "forget"] => format!("\n\n{FORGET}"),
                ["hardware", "erase"] => format!("\n\n{ERASE}"),
                ["hardware", "release"] => format!("\n\n{RELEASE}"),
                _ if waits => format!("\n\n{WAITING}"),
                _ => String::new(),
            };
            verb.after_help(named(&format!("Examples:\n{examples}{more}"), program))
        });
    }
    command
}

fn described(command: Command, words: &[&str], describe: &dyn Fn(Command) -> Command) -> Command {
    match words.split_first() {
        None => describe(command),
        Some((verb, rest)) => command.mut_subcommand(verb, |inner| described(inner, rest, describe)),
    }
}

fn named(text: &str, program: &str) -> String {
    match program {
        "bmctl" => text.to_owned(),
        // A script is installed for and by the program itself.
        _ => text.replace("bmctl ", &format!("{program} ")),
    }
}
