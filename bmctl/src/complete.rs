//! Completion: scripts for the shells that call us back, and names that the cluster is asked for.
//!
//! A completion is asked for while somebody types: it may find nothing, but it may not fail, print or take long.

use crate::args::{self, ClusterArgs, Shell};
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::help;
use anyhow::Context;
use api::tinkerbell::{Hardware, Workflow};
use api::{BareMetalMachine, Dpu, MachineSnapshot, Subnet, VNic};
use clap_complete::engine::{CompletionCandidate, complete};
use clap_complete::env::{CompleteEnv, Shells};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use std::ffi::{OsStr, OsString};
use std::fmt::Debug;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(2);

/// Of what names are wanted.
#[derive(Debug, Clone, Copy)]
pub enum Names {
    Machines,
    /// Of the machine that the command line names.
    Disks,
    Interfaces,
    Claims,
    Subnets,
    VNics,
    Dpus,
    Hardware,
    Workflows,
    DpuUids,
    Snapshots,
    /// VNics, and interfaces of machines.
    Ends,
}

/// Answers a shell that asks for candidates, and ends the program; returns if none asks.
pub fn answer_shell(program: &'static str) {
    CompleteEnv::with_factory(|| help::command(program)).complete();
}

/// The script that makes a shell ask us.
pub fn script(shell: Shell) -> Result<String, Failure> {
    let name = match shell {
        Shell::Bash => "bash",
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
        Shell::Kubectl => return Ok(KUBECTL.to_owned()),
    };
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let known = shells.completer(name).with_context(|| format!("no completion for {name}"))?;
    known.write_registration("COMPLETE", "bmctl", "bmctl", "bmctl", &mut script).context("write the script")?;
    Ok(String::from_utf8_lossy(&script).into_owned())
}

/// kubectl (1.26 and newer) runs this for the words behind `kubectl bm`.
const KUBECTL: &str = "#!/bin/sh
# Completion of `kubectl bm`: put this file on the PATH, executable, as kubectl_complete-bm, beside kubectl-bm.
exec kubectl-bm __complete -- \"$@\"
";

/// The candidates in the form that kubectl reads: a line each, then a directive (4: no file names).
pub fn for_kubectl(words: &[OsString]) -> String {
    let mut all = vec![OsString::from("kubectl-bm")];
    // `--` only keeps our own flags apart.
    all.extend(words.iter().skip(usize::from(words.first().is_some_and(|word| word == "--"))).cloned());
    if all.len() == 1 {
        all.push(OsString::new());
    }
    let last = all.len() - 1;
    let mut text = String::new();
    for candidate in complete(&mut help::command("kubectl bm"), all, last, None).unwrap_or_default() {
        text.push_str(&candidate.get_value().to_string_lossy());
        if let Some(help) = candidate.get_help() {
            text.push_str(&format!("\t{}", help.to_string().lines().next().unwrap_or_default()));
        }
        text.push('\n');
    }
    text + ":4\n"
}

/// Names that begin with what is typed so far.
pub fn names(of: Names, current: &OsStr) -> Vec<CompletionCandidate> {
    let words = args::typed();
    let found = tokio::runtime::Builder::new_current_thread().enable_all().build().ok().and_then(|runtime| {
        let asked = async { tokio::time::timeout(PATIENCE, ask(of, &words)).await };
        runtime.block_on(asked).ok()?.ok()
    });
    let typed = current.to_string_lossy();
    let fitting = found.unwrap_or_default().into_iter().filter(|name| name.starts_with(&*typed));
    fitting.map(CompletionCandidate::new).collect()
}

async fn ask(of: Names, words: &[String]) -> Result<Vec<String>, Failure> {
    let cluster = Cluster::connect(&cluster_args(words), "bmctl").await?;
    let machine = || async { cluster.machine(machine_of(words).unwrap_or_default()).await };
    match of {
        Names::Machines => listed::<BareMetalMachine>(&cluster).await,
        Names::Claims => listed::<PersistentVolumeClaim>(&cluster).await,
        Names::Subnets => listed::<Subnet>(&cluster).await,
        Names::VNics => listed::<VNic>(&cluster).await,
        Names::Ends => crate::net::ends(&cluster).await,
        Names::Snapshots => listed::<MachineSnapshot>(&cluster).await,
        Names::Disks => Ok(machine().await?.spec.disks.into_iter().map(|disk| disk.name).collect()),
        Names::Interfaces => Ok(machine().await?.spec.interfaces.into_iter().map(|nic| nic.name).collect()),
        Names::Dpus => Ok(dpus(&cluster).await?.iter().map(ResourceExt::name_any).collect()),
        Names::Hardware => {
            let all = Api::<Hardware>::all(cluster.client.clone()).list_metadata(&ListParams::default()).await;
            Ok(all.map_err(|error| cluster.failure(error, ""))?.into_iter().map(|one| one.name_any()).collect())
        }
        Names::Workflows => {
            let all = Api::<Workflow>::all(cluster.client.clone()).list_metadata(&ListParams::default()).await;
            Ok(all.map_err(|error| cluster.failure(error, ""))?.into_iter().map(|one| one.name_any()).collect())
        }
        Names::DpuUids => Ok(dpus(&cluster).await?.iter().filter_map(ResourceExt::uid).collect()),
    }
}

async fn dpus(cluster: &Cluster) -> Result<Vec<Dpu>, Failure> {
    let dpus = Api::<Dpu>::all(cluster.client.clone()).list(&ListParams::default()).await;
    Ok(dpus.map_err(|error| cluster.failure(error, ""))?.items)
}

async fn listed<K>(cluster: &Cluster) -> Result<Vec<String>, Failure>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let found = api.list_metadata(&ListParams::default()).await.map_err(|error| cluster.failure(error, ""))?;
    Ok(found.into_iter().map(|object| object.name_any()).collect())
}

const VALUED: [&str; 4] = ["-n", "--namespace", "--context", "--kubeconfig"];

fn cluster_args(words: &[String]) -> ClusterArgs {
    let value = |names: &[&str]| {
        words.iter().enumerate().find_map(|(at, word)| match word.split_once('=') {
            Some((name, value)) if names.contains(&name) => Some(value.to_owned()),
            _ if names.contains(&word.as_str()) => words.get(at + 1).cloned(),
            _ => None,
        })
    };
    ClusterArgs {
        namespace: value(&["-n", "--namespace"]),
        context: value(&["--context"]),
        kubeconfig: value(&["--kubeconfig"]),
    }
}

/// The first word behind the verb that is neither a flag nor one's value.
fn machine_of(words: &[String]) -> Option<&str> {
    let is_verb = |word: &&String| ["disk", "interface"].iter().any(|part| word.ends_with(part));
    let mut behind = words.iter().skip_while(|word| !is_verb(word)).skip(1);
    while let Some(word) = behind.next() {
        if VALUED.contains(&word.as_str()) {
            behind.next();
        } else if !word.starts_with('-') {
            return Some(word);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_line_so_far_says_which_cluster_and_machine() {
        let line = words("bmctl --context c removedisk -n team-a bm-01 da");
        let args = cluster_args(&line);
        assert_eq!((args.namespace.as_deref(), args.context.as_deref()), (Some("team-a"), Some("c")));
        assert_eq!(machine_of(&line), Some("bm-01"));
        assert_eq!(cluster_args(&words("bmctl get --namespace=b x")).namespace.as_deref(), Some("b"));
        assert_eq!(machine_of(&words("bmctl adddisk")), None);
    }

    #[test]
    fn kubectl_gets_a_directive_behind_the_candidates() {
        let verbs = for_kubectl(&["--".into(), "add".into()]);
        assert!(verbs.starts_with("adddisk\t") && verbs.contains("\naddinterface\t"), "{verbs}");
        assert!(verbs.ends_with("\n:4\n"));
        assert_eq!(for_kubectl(&["--".into(), "completion".into(), "kub".into()]).lines().last(), Some(":4"));
    }

    #[test]
    fn scripts_call_us_back() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell).expect("written");
            assert!(script.contains("bmctl"), "{shell:?}: {script}");
        }
        assert!(script(Shell::Kubectl).expect("written").contains("kubectl-bm __complete"));
    }
}
