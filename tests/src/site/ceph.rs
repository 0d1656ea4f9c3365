//! A Ceph of one node inside the sandbox, for controller and agents that are processes: its addresses are the control
//! plane's, which every DPU reaches. What opens its images on a DPU is a `qemu-storage-daemon` beside the agent.

use super::{Agents, Site, install};
use anyhow::{Context, Result};
use sandbox::Sandbox;
use sandbox::ceph::{CLUSTER, Lab, Place, Programs, USER, daemon};
use sandbox::handle::Options;
use sandbox::layout::{API_ADDRESS, CONTROL_PLANE};
use sandbox::supervisor::process::ProcessSpec;
use std::collections::BTreeMap;

/// Where a DPU's daemon takes QMP, inside the DPU.
const DAEMON_SOCKET: &str = "/run/metalplane/images.sock";

pub struct Ceph {
    pub lab: Lab,
    /// With which the daemon finds QEMU's client of Ceph.
    module: BTreeMap<String, String>,
}

impl Ceph {
    /// What starts it; else what is missing.
    pub async fn find() -> Result<(Programs, BTreeMap<String, String>)> {
        let programs = Programs::find().await.context("no Ceph")?;
        let module = programs.qemu_module().await;
        Ok((programs, module.context("this QEMU has no client of Ceph (package qemu-block-extra)")?))
    }

    /// What a process needs that calls Ceph's programs.
    pub(super) fn programs(&self, process: ProcessSpec) -> Result<ProcessSpec> {
        let cluster = format!("--ceph-cluster={CLUSTER}={USER}@{}", self.lab.config_file().display());
        let folder = format!("--ceph-programs={}", self.lab.ceph.programs().folder()?.display());
        let mut process = self.lab.environment().into_iter().fold(process, |it, (name, value)| it.env(&name, value));
        process.argv.extend([cluster, folder]);
        Ok(process)
    }

    pub(super) fn agent(&self, process: ProcessSpec) -> Result<ProcessSpec> {
        let mut process = self.programs(process)?;
        process.argv.push(format!("--qemu-rbd-daemon={DAEMON_SOCKET}"));
        Ok(process)
    }

    pub(super) fn daemon(&self, dpu: &str) -> ProcessSpec {
        let words = std::iter::once(daemon::PROGRAM.to_owned()).chain(daemon::arguments(DAEMON_SOCKET));
        let process = ProcessSpec::new(format!("{dpu}/storage-daemon"), words).enter(dpu);
        self.module.iter().fold(process, |it, (name, value)| it.env(name, value))
    }
}

impl Site {
    /// A site with a cluster, whose agents connect its images and whose controller fences them.
    pub async fn start_with_ceph(
        name: &str,
        options: Options,
        (programs, module): (Programs, BTreeMap<String, String>),
        say: &dyn Fn(&str),
    ) -> Result<Self> {
        say("starting the cluster: control plane and two DPUs");
        let sandbox = Sandbox::start(name, options).await?;
        say("starting a Ceph of one node in the control plane's network");
        let place = Place::inside(&sandbox.layout().netns_file(CONTROL_PLANE), API_ADDRESS);
        let ceph = Some(Ceph { lab: Lab::at(&programs, &place).await?, module });
        let site = Self { sandbox, helm: install::helm().await?, agents: Agents::Process, spdk: None, ceph };
        site.install(say).await?;
        Ok(site)
    }
}
