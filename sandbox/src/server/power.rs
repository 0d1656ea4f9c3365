//! Power: the host goes on, off and around, by the BMC's orders and by the guest's.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::host::{Host, Process, Started};
use super::machine::{AfterShutdown, Machine, Power, State};
use super::qmp::event;
use super::{accelerator, inside};

/// A DPU's namespaces are there long before it is Ready.
const DPU_WITHIN: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const END_WITHIN: Duration = Duration::from_secs(60);
const RESET_WITHIN: Duration = Duration::from_secs(90);
/// A guest that shuts down later than this after a graceful restart was asked for does it for a reason of its own.
const RESTART_WITHIN: Duration = Duration::from_secs(300);

impl Machine {
    /// Switches the host on; it is on, or starting with all it is presented, when this returns.
    pub async fn switch_on(self: &Arc<Self>) -> Result<()> {
        let accelerator = *self.accelerator.get_or_init(|| accelerator::choose(&self.config, &self.cache)).await;
        let mut state = self.state.lock().await;
        if state.host.is_some() {
            return Ok(());
        }
        self.power.send_replace(Power::PoweringOn);
        if self.personality.dpu_shares_power {
            self.wake_dpu().await;
        }
        let started = self.start(&mut state, accelerator).await;
        if let Err(error) = started {
            state.host = None;
            self.power.send_replace(Power::Off);
            return Err(error);
        }
        self.power.send_replace(Power::On);
        Ok(())
    }

    async fn start(self: &Arc<Self>, state: &mut State, accelerator: &'static str) -> Result<()> {
        let enter = self.config.enter.as_deref();
        let dpu_is_there = inside::is_there(enter).await;
        if !dpu_is_there {
            tracing::warn!("the DPU is off: the host starts with empty slots");
            state.record.clear();
        }
        state.starts += 1;
        state.after_shutdown = AfterShutdown::StayOff;
        state.crashed = false;
        let enter = enter.filter(|_| dpu_is_there);
        let into_setup = self.boot_settings().enters_setup();
        let started = Host::start(&self.config, enter, accelerator, state.starts, into_setup).await?;
        let Started { host, mut events, process } = started;
        let number = host.number;
        state.host = Some(host);
        self.replay(state).await;
        self.connect_controller(state).await;
        self.connect_medium(state).await;
        self.apply_boot_order(state).await;
        self.release(state, &mut events).await?;
        self.boot_settings_used(state).await;
        tracing::info!(server = self.config.name, "the host is on ({accelerator}, start {number})");
        self.running.send_replace(true);
        tokio::spawn(Arc::clone(self).follow(number, events));
        tokio::spawn(Arc::clone(self).bury(number, process));
        Ok(())
    }

    /// Gives power to the DPU. It boots beside the host, which only needs its namespaces to be there.
    async fn wake_dpu(self: &Arc<Self>) {
        let machine = Arc::clone(self);
        tokio::spawn(async move {
            if let Some(dpu) = &machine.config.dpu
                && let Err(error) = inside::switch_dpu(dpu, true).await
            {
                tracing::error!("the DPU does not start with its host: {error:#}");
            }
        });
        let deadline = Instant::now() + DPU_WITHIN;
        while !inside::is_there(self.config.enter.as_deref()).await && Instant::now() < deadline {
            sleep(LOOK_EVERY).await;
        }
    }

    /// What QEMU does not take is missing on the host, as a function that broke would be; the record says so too.
    async fn replay(&self, state: &mut State) {
        for step in state.record.replay() {
            let Some(host) = &mut state.host else { return };
            if let Err(refusal) = host.execute(step.command, step.arguments.clone()).await {
                tracing::warn!("the host starts without {}: {refusal}", step.name);
                state.record.lose(&step);
                if step.command == "device_add" {
                    self.tell(event("DEVICE_DELETED", json!({ "device": step.name })));
                }
            }
        }
    }

    /// A target that is not there is a controller that is not there.
    async fn connect_controller(&self, state: &mut State) {
        let (Some(folder), Some(host)) = (&self.config.vfio_user, &mut state.host) else { return };
        state.has_controller = match host.add_controller(folder).await {
            Ok(_) => true,
            Err(refusal) => {
                tracing::warn!("the host starts without the controller in {}: {refusal}", folder.display());
                false
            }
        };
    }

    /// Lets the processors go. The reset before makes cold-plugged devices of those that were just added, and gives
    /// the boot order to the firmware; its event is nobody's.
    async fn release(&self, state: &mut State, events: &mut mpsc::UnboundedReceiver<Value>) -> Result<()> {
        let host = state.host.as_mut().context("the host was just started")?;
        host.order("system_reset").await.map_err(|refusal| anyhow::anyhow!("reset before the start: {refusal}"))?;
        let reset = async {
            while let Some(event) = events.recv().await {
                if event["event"] == "RESET" {
                    return Ok(());
                }
            }
            bail!("QEMU ended before its processors ran")
        };
        timeout(RESET_WITHIN, reset).await.context("QEMU did not reset before the start")??;
        host.order("cont").await.map_err(|refusal| anyhow::anyhow!("let the processors go: {refusal}"))?;
        Ok(())
    }

    /// Cuts the power. The host is off when `bury` has seen the end of its process.
    pub async fn cut(self: &Arc<Self>, then_on: bool) {
        let mut state = self.state.lock().await;
        (state.power_cycle, state.restarts) = (then_on, false);
        if let Some(host) = &mut state.host {
            self.power.send_replace(Power::PoweringOff);
            host.kill();
        } else if std::mem::take(&mut state.crashed) {
            drop(state);
            self.went_off().await;
        }
    }

    /// Presses the power button; what comes of it is the guest's business.
    pub async fn press_button(&self, then_restart: bool) -> Result<()> {
        let mut state = self.state.lock().await;
        let asked = std::time::Instant::now();
        state.after_shutdown = if then_restart { AfterShutdown::Restart { asked } } else { AfterShutdown::StayOff };
        let Some(host) = &mut state.host else { return Ok(()) };
        let refused = |refusal| anyhow::anyhow!("press the power button: {refusal}");
        // A restart keeps the process, and with it the power: only the guest goes down and comes up again.
        host.on_shutdown(if then_restart { "pause" } else { "poweroff" }).await.map_err(refused)?;
        host.order("system_powerdown").await.map_err(refused)?;
        Ok(())
    }

    /// Resets the host, power staying on. QEMU reads the firmware's variables when it starts, so that a reset into the setup is a new
    /// process, which finds in its slots what the one before had.
    pub async fn reset(self: &Arc<Self>) -> Result<()> {
        let mut state = self.state.lock().await;
        state.restarts = state.host.is_some() && self.boot_settings().enters_setup();
        if state.restarts {
            state.host.as_mut().into_iter().for_each(Host::kill);
        } else if let Some(host) = &mut state.host {
            host.order("system_reset").await.map_err(|refusal| anyhow::anyhow!("reset the host: {refusal}"))?;
        } else if std::mem::take(&mut state.crashed) {
            drop(state);
            self.switch_on_again().await?;
        }
        Ok(())
    }

    /// The DPU lost its power, or crashed: what it presented is gone, and a running host does not survive that. When
    /// this returns nothing of the host has a file of the DPU open.
    pub async fn dpu_lost(&self) {
        {
            let mut state = self.state.lock().await;
            // The taps are in a namespace that may no longer exist; one that is left is taken again by its name.
            state.record.clear();
            let Some(host) = &mut state.host else { return };
            host.kill();
            state.crashed = true;
            tracing::warn!(server = self.config.name, "the host crashed: its DPU lost its power or crashed");
        }
        if timeout(END_WITHIN, self.ended()).await.is_err() {
            tracing::error!("the host's process does not end");
        }
    }

    async fn ended(&self) {
        // The sender lives as long as the machine, so waiting cannot fail.
        let _ = self.running.subscribe().wait_for(|running| !*running).await;
    }

    /// Waits until the host is off or on for good.
    pub async fn settled(&self, wanted: Power) {
        // The sender lives as long as the machine, so waiting cannot fail.
        let _ = self.power.subscribe().wait_for(|power| *power == wanted).await;
    }

    /// The virtual server ends: its host and its taps end with it.
    pub async fn end(&self) {
        let taps = {
            let mut state = self.state.lock().await;
            (state.power_cycle, state.restarts) = (false, false);
            if let Some(host) = &mut state.host {
                // Told to quit, QEMU flushes its disks; it may be too far gone to answer.
                let _ = host.order("quit").await;
                host.kill();
            }
            state.record.taps()
        };
        if timeout(END_WITHIN, self.ended()).await.is_err() {
            tracing::warn!("the host's process outlives its server");
        }
        self.remove_taps(&taps).await;
    }

    /// Handles the events of one run and passes them on.
    async fn follow(self: Arc<Self>, number: u64, mut events: mpsc::UnboundedReceiver<Value>) {
        while let Some(event) = events.recv().await {
            {
                let mut state = self.state.lock().await;
                if state.host.as_ref().is_none_or(|host| host.number != number) {
                    return;
                }
                match event["event"].as_str().unwrap_or_default() {
                    "DEVICE_DELETED" => {
                        if let Some(device) = event["data"]["device"].as_str() {
                            state.record.gone(device);
                        }
                    }
                    "RESET" => self.boot_settings_used(&mut state).await,
                    "SHUTDOWN" => self.guest_shut_down(&mut state).await,
                    _ => {}
                }
            }
            self.tell(event);
        }
    }

    async fn guest_shut_down(&self, state: &mut State) {
        let after = std::mem::replace(&mut state.after_shutdown, AfterShutdown::StayOff);
        let AfterShutdown::Restart { asked } = after else { return };
        let Some(host) = &mut state.host else { return };
        if asked.elapsed() > RESTART_WITHIN {
            host.kill();
            return;
        }
        let restart = async {
            host.order("system_reset").await?;
            host.order("cont").await?;
            host.on_shutdown("poweroff").await
        };
        if let Err(refusal) = restart.await {
            tracing::warn!("restart after the guest's shutdown: {refusal}");
        }
    }

    /// Waits for the end of a run and leaves the machine off, or crashed, or starts the next run.
    async fn bury(self: Arc<Self>, number: u64, process: Process) {
        process.ended().await;
        {
            let mut state = self.state.lock().await;
            if state.host.as_ref().is_none_or(|host| host.number != number) {
                return;
            }
            state.host = None;
            for device in state.record.host_off() {
                self.tell(event("DEVICE_DELETED", json!({ "device": device })));
            }
            self.running.send_replace(false);
            if state.crashed {
                return;
            }
            if std::mem::take(&mut state.restarts) {
                drop(state);
                return self.go_on().await;
            }
            self.power.send_replace(Power::PoweringOff);
        }
        self.went_off().await;
    }

    /// The next process of a host whose power is on; with a type that has a name, as [`Machine::switch_on_again`].
    fn go_on(self: &Arc<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let machine = Arc::clone(self);
        Box::pin(async move {
            let accelerator =
                *machine.accelerator.get_or_init(|| accelerator::choose(&machine.config, &machine.cache)).await;
            let mut state = machine.state.lock().await;
            if let Err(error) = machine.start(&mut state, accelerator).await {
                tracing::error!("the host does not come up again: {error:#}");
                (state.host, state.crashed) = (None, true);
            }
        })
    }

    /// What follows when the host has gone off: the DPU goes too if it shares the power, and a power cycle goes on.
    async fn went_off(self: &Arc<Self>) {
        if self.personality.dpu_shares_power {
            self.lose_dpu().await;
        }
        let again = std::mem::take(&mut self.state.lock().await.power_cycle);
        self.power.send_replace(Power::Off);
        if again && let Err(error) = self.switch_on_again().await {
            tracing::error!("the host stays off: {error:#}");
        }
    }

    /// [`Machine::switch_on`] with a type that has a name: a start ends in the next one, without end.
    fn switch_on_again(self: &Arc<Self>) -> Pin<Box<dyn Future<Output = Result<()>> + Send>> {
        let machine = Arc::clone(self);
        Box::pin(async move { machine.switch_on().await })
    }

    /// The DPU goes down with the host and takes along what it presented. The lock is not held while the supervisor
    /// works: it tells [`Machine::dpu_lost`].
    async fn lose_dpu(&self) {
        let taps = self.state.lock().await.record.clear();
        self.remove_taps(&taps).await;
        if let Some(dpu) = &self.config.dpu
            && let Err(error) = inside::switch_dpu(dpu, false).await
        {
            tracing::error!("the DPU keeps running while its host is off: {error:#}");
        }
    }
}
