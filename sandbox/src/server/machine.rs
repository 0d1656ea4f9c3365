//! The machine: what is presented to it, whether it is on, and the one lock that orders all changes.
//!
//! Commands from the slots socket and power actions from the BMC come here. [`Machine::command`] serves the first,
//! [`super::power`] the second; both hold the state's lock for as long as a change takes, so that nobody sees a host
//! with half of its devices.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::sync::{Mutex, OnceCell, broadcast, watch};

use super::boot::{BootOption, Settings, Store};
use super::config::Config;
use super::host::{CONTROLLER, Host, LOCAL_DISK, PROVISIONING};
use super::medium::Drive;
use super::personality::Personality;
use super::post::Post;
use super::qmp::{Answer, Arguments, Refusal, event};
use super::record::{Record, file_of, text};
use super::{inside, ports};

const EVENTS_KEPT: usize = 1024;

/// Power as the BMC reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    Off,
    PoweringOn,
    On,
    PoweringOff,
}

impl Power {
    pub fn name(self) -> &'static str {
        match self {
            Power::Off => "Off",
            Power::PoweringOn => "PoweringOn",
            Power::On => "On",
            Power::PoweringOff => "PoweringOff",
        }
    }
}

/// What follows when the guest has shut itself down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterShutdown {
    StayOff,
    /// A graceful restart was asked for, no later than this ago.
    Restart {
        asked: std::time::Instant,
    },
}

pub struct State {
    pub record: Record,
    pub host: Option<Host>,
    pub starts: u64,
    pub after_shutdown: AfterShutdown,
    pub power_cycle: bool,
    /// The process ends, and the next one begins while the power stays on.
    pub restarts: bool,
    /// The running host found the controller that a target offers.
    pub has_controller: bool,
    /// The host's process ended, and its power stays on: the DPU went away under it, or a reset brought up no other process.
    pub crashed: bool,
}

pub struct Machine {
    pub config: Config,
    pub personality: &'static Personality,
    /// Where guest images are kept; the accelerator's probe needs one.
    pub cache: PathBuf,
    pub accelerator: OnceCell<&'static str>,
    pub power: watch::Sender<Power>,
    /// Whether a QEMU process exists.
    pub running: watch::Sender<bool>,
    pub events: broadcast::Sender<Value>,
    pub state: Mutex<State>,
    /// The firmware's last.
    post: std::sync::Mutex<Option<Post>>,
    in_setup: AtomicBool,
    /// The virtual CD drive. Changed while the state is locked.
    pub drive: std::sync::Mutex<Drive>,
    boot: std::sync::Mutex<Store>,
}

impl Machine {
    pub fn new(config: Config, cache: PathBuf) -> Result<Arc<Machine>> {
        let personality = config.personality()?;
        let boot = Store::open(&config.state("boot-settings.json"), personality)?;
        let after_shutdown = AfterShutdown::StayOff;
        let state = State {
            record: Record::default(),
            host: None,
            starts: 0,
            after_shutdown,
            power_cycle: false,
            restarts: false,
            has_controller: false,
            crashed: false,
        };
        Ok(Arc::new(Machine {
            config,
            personality,
            cache,
            accelerator: OnceCell::new(),
            power: watch::Sender::new(Power::Off),
            running: watch::Sender::new(false),
            events: broadcast::Sender::new(EVENTS_KEPT),
            state: Mutex::new(state),
            post: std::sync::Mutex::default(),
            in_setup: AtomicBool::new(false),
            drive: std::sync::Mutex::default(),
            boot: std::sync::Mutex::new(boot),
        }))
    }

    /// One command of the slots socket. The same commands work whether the host is off or on.
    pub async fn command(&self, command: &str, arguments: Arguments) -> Answer {
        let mut state = self.state.lock().await;
        match command {
            // Of the human monitor only what QMP has no query for: which network back ends there are.
            "human-monitor-command" if arguments.get("command-line") != Some(&json!("info network")) => {
                Err(Refusal::command_not_found(command))
            }
            "query-status"
            | "query-named-block-nodes"
            | "query-block"
            | "query-blockstats"
            | "qom-list"
            | "qom-get"
            | "human-monitor-command" => match &mut state.host {
                Some(host) => host.execute(command, arguments).await,
                None if command == "query-named-block-nodes" => self.describe_nodes(&state.record).await,
                None => state.record.answer(command, &arguments),
            },
            "netdev_add" => self.add_backend(&mut state, arguments).await,
            "netdev_del" => {
                let tap = state.record.tap(text(&arguments, "id")?);
                let answer = self.change(&mut state, command, arguments).await?;
                if let Some(tap) = tap {
                    self.remove_taps(&[tap]).await;
                }
                Ok(answer)
            }
            "device_add" => {
                let mut arguments = arguments;
                // The place in the boot order is the BMC's to give.
                arguments.remove("bootindex");
                let id = text(&arguments, "id")?.to_owned();
                let answer = self.change(&mut state, command, arguments).await?;
                self.apply_boot_order(&mut state).await;
                tracing::info!("presented {id}");
                Ok(answer)
            }
            "device_del" => {
                let id = text(&arguments, "id")?.to_owned();
                let answer = self.change(&mut state, command, arguments).await?;
                if state.host.is_none() {
                    self.tell(event(
                        "DEVICE_DELETED",
                        json!({ "device": id, "path": format!("/machine/peripheral/{id}") }),
                    ));
                }
                Ok(answer)
            }
            "blockdev-add"
            | "blockdev-del"
            | "block_resize"
            | "block_set_io_throttle"
            | "set_link"
            | "object-add"
            | "object-del" => self.change(&mut state, command, arguments).await,
            other => Err(Refusal::command_not_found(other)),
        }
    }

    async fn change(&self, state: &mut State, command: &str, arguments: Arguments) -> Answer {
        match &mut state.host {
            None if command == "block_resize" => self.resize_file(&state.record, &arguments).await,
            None => {
                if command == "blockdev-add" {
                    self.check_file(&arguments).await?;
                }
                state.record.take(command, &arguments)
            }
            Some(host) => {
                let answer = host.execute(command, arguments.clone()).await?;
                state.record.accepted(command, &arguments);
                Ok(answer)
            }
        }
    }

    async fn describe_nodes(&self, record: &Record) -> Answer {
        let sizes = inside::sizes(self.config.enter.as_deref(), &record.files()).await;
        let sizes = sizes.map_err(|error| Refusal::generic(format!("{error:#}")))?;
        Ok(record.describe_nodes(&sizes))
    }

    async fn check_file(&self, arguments: &Arguments) -> Result<(), Refusal> {
        match file_of(arguments) {
            Some(file) => self.size(file).await.map(drop),
            None => Ok(()),
        }
    }

    /// The size of a file, or QEMU's complaint.
    async fn size(&self, file: &str) -> Result<u64, Refusal> {
        let failed = |reason: &str| Refusal::generic(format!("Could not open '{file}': {reason}"));
        let sizes = inside::sizes(self.config.enter.as_deref(), &[file]).await;
        let sizes = sizes.map_err(|error| failed(&format!("{error:#}")))?;
        sizes.first().copied().flatten().ok_or_else(|| failed("No such file or directory"))
    }

    /// A raw node is as large as its file: growing one means growing the other, as QEMU does. Never shrinks: what is
    /// cut off is lost.
    async fn resize_file(&self, record: &Record, arguments: &Arguments) -> Answer {
        let name = text(arguments, "node-name")?;
        if record.is_image(name) {
            return Ok(json!({}));
        }
        let file = record.file(name)?;
        let wanted = arguments.get("size").and_then(Value::as_u64);
        let wanted = wanted.ok_or_else(|| Refusal::generic("Parameter 'size' expects a >0 size"))?;
        let now = self.size(file).await?;
        if wanted < now {
            return Err(Refusal::generic(format!("Shrinking {name} from {now} to {wanted} bytes would lose data")));
        }
        if wanted > now {
            let grown = inside::grow(self.config.enter.as_deref(), file, wanted).await;
            grown.map_err(|error| Refusal::generic(format!("Failed to resize '{name}': {error:#}")))?;
        }
        Ok(json!({}))
    }

    /// The tap comes first: QEMU opens it by its name. It goes again if the back end is refused.
    async fn add_backend(&self, state: &mut State, mut arguments: Arguments) -> Answer {
        let name = text(&arguments, "ifname")?.to_owned();
        if state.record.taps().contains(&name) {
            return Err(Refusal::generic(format!("could not configure {name}: Device or resource busy")));
        }
        for script in ["script", "downscript"] {
            arguments.insert(script.to_owned(), json!("no"));
        }
        let enter = self.config.enter.as_deref();
        inside::add_tap(enter, &name).await.map_err(|error| Refusal::generic(format!("{error:#}")))?;
        let answer = self.change(state, "netdev_add", arguments).await;
        if answer.is_err() {
            self.remove_taps(&[name]).await;
        }
        answer
    }

    pub async fn remove_taps(&self, taps: &[String]) {
        for tap in taps {
            if let Err(error) = inside::remove_tap(self.config.enter.as_deref(), tap).await {
                tracing::warn!("tap {tap} stays behind: {error:#}");
            }
        }
    }

    /// Sends an event to every connection of the slots socket.
    pub fn tell(&self, event: Value) {
        // Nobody may be listening.
        let _ = self.events.send(event);
    }

    /// The firmware is in its POST.
    pub fn is_in_post(&self) -> bool {
        self.is_on_and(Post::is_running)
    }

    pub fn is_started_within(&self, time: std::time::Duration) -> bool {
        self.is_on_and(|post| post.lasts() < time)
    }

    fn is_on_and(&self, holds: impl FnOnce(&mut Post) -> bool) -> bool {
        let mut post = self.post.lock().unwrap_or_else(PoisonError::into_inner);
        *self.power.borrow() == Power::On && post.as_mut().is_some_and(holds)
    }

    /// The last start was one into the setup.
    pub fn is_in_setup(&self) -> bool {
        self.in_setup.load(Ordering::Relaxed)
    }

    pub fn boot_settings(&self) -> Settings {
        self.boot.lock().unwrap_or_else(PoisonError::into_inner).settings.clone()
    }

    /// Changes the boot settings and gives them to the running host for its next reset.
    pub async fn change_boot_settings(&self, change: impl FnOnce(&mut Settings)) -> Result<()> {
        let mut state = self.state.lock().await;
        self.boot.lock().unwrap_or_else(PoisonError::into_inner).change(change)?;
        self.apply_boot_order(&mut state).await;
        Ok(())
    }

    /// A start of the host has used the boot settings: what is left of them counts for the next one.
    pub async fn boot_settings_used(&self, state: &mut State) {
        let post = Post::begin(self.config.state("console.log"));
        *self.post.lock().unwrap_or_else(PoisonError::into_inner) = Some(post);
        let before = self.boot_settings();
        let personality = self.personality;
        self.in_setup.store(before.enters_setup(), Ordering::Relaxed);
        let has_slot = state.has_controller || state.record.placed().iter().any(|(bus, _)| bus == ports::BOOT);
        let changed = {
            let mut store = self.boot.lock().unwrap_or_else(PoisonError::into_inner);
            store.change(|settings| settings.started(personality, has_slot))
        };
        if let Err(error) = changed.context("keep the boot settings") {
            tracing::warn!("{error:#}");
        }
        if before != self.boot_settings() {
            self.apply_boot_order(state).await;
        }
    }

    /// Gives each device that can be booted its index. All lose theirs first: QEMU refuses one that is taken.
    pub async fn apply_boot_order(&self, state: &mut State) {
        let indexes = self.boot_indexes(state);
        let Some(host) = &mut state.host else { return };
        let given = indexes.iter().filter(|(_, index)| index.is_some());
        for (device, index) in
            indexes.iter().map(|(device, _)| (device, &None)).chain(given.map(|(device, index)| (device, index)))
        {
            if let Err(refusal) = host.set_boot_index(device, *index).await {
                tracing::warn!("boot order of {device}: {refusal}");
            }
        }
    }

    fn boot_indexes(&self, state: &State) -> Vec<(String, Option<u32>)> {
        let record = &state.record;
        let settings = self.boot_settings();
        let order = settings.effective(self.personality, &self.config.boot_disk());
        let index = |option: BootOption, port: usize| {
            let place = order.iter().position(|candidate| *candidate == option)?;
            u32::try_from((place + 1) * 100 + port).ok()
        };
        let mut indexes = Vec::new();
        if let Some(medium) = self.medium() {
            // Before all options, or not at all.
            indexes.push((medium.device(), settings.takes_drive(self.personality).then_some(1)));
        }
        if self.personality.has_local_disk {
            indexes.push((LOCAL_DISK.to_owned(), index(BootOption::LocalDisk, 0)));
        }
        if self.config.provisioning.is_some() {
            indexes.push((PROVISIONING.to_owned(), index(BootOption::Network, 0)));
        }
        if state.has_controller {
            let port = ports::position(ports::BOOT).unwrap_or_default();
            indexes.push((CONTROLLER.to_owned(), index(BootOption::Slot, port)));
        }
        for (bus, device) in record.placed() {
            let port = ports::position(&bus).unwrap_or_default();
            let option = match record.driver(&device) {
                Some("virtio-net-pci") => BootOption::Network,
                _ if bus == ports::BOOT => BootOption::Slot,
                _ => continue,
            };
            indexes.push((device, index(option, port)));
        }
        indexes
    }
}
