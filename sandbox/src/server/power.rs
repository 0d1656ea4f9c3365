//! Power: the host goes on, off and around, by the BMC's orders and by the guest's.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::host::{Host, Process, Started};
use super::machine::{AfterShutdown, Machine, Power, State};
use super::qmp::event;
use super::{accelerator, inside};

const END_WITHIN: Duration = Duration::from_secs(10);
const RESET_WITHIN: Duration = Duration::from_secs(30);
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
        if let Some(dpu) = self.config.dpu.as_ref().filter(|_| self.personality.dpu_shares_power) {
            inside::switch_dpu(dpu, true).await?;
        }
        state.starts += 1;
        state.after_shutdown = AfterShutdown::StayOff;
        let Started { host, mut events, process } = Host::start(&self.config, accelerator, state.starts).await?;
        let number = host.number;
        state.host = Some(host);
        self.replay(state).await;
        self.apply_boot_order(state).await;
        self.release(state, &mut events).await?;
        self.boot_settings_used(state).await;
        tracing::info!(server = self.config.name, "the host is on ({accelerator}, start {number})");
        tokio::spawn(Arc::clone(self).follow(number, events));
        tokio::spawn(Arc::clone(self).bury(number, process));
        Ok(())
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
    pub async fn cut(&self, then_on: bool) {
        let mut state = self.state.lock().await;
        state.power_cycle = then_on;
        if let Some(host) = &mut state.host {
            self.power.send_replace(Power::PoweringOff);
            host.kill();
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

    /// Resets the host, power staying on.
    pub async fn reset(&self) -> Result<()> {
        let mut state = self.state.lock().await;
        let Some(host) = &mut state.host else { return Ok(()) };
        host.order("system_reset").await.map_err(|refusal| anyhow::anyhow!("reset the host: {refusal}"))?;
        Ok(())
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
            if let Some(host) = &mut state.host {
                // Told to quit, QEMU flushes its disks; it may be too far gone to answer.
                let _ = host.order("quit").await;
                host.kill();
            }
            state.power_cycle = false;
            state.record.taps()
        };
        if *self.power.borrow() != Power::Off && timeout(END_WITHIN, self.settled(Power::Off)).await.is_err() {
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

    /// Waits for the end of a run and leaves the machine off, or starts the next run.
    async fn bury(self: Arc<Self>, number: u64, process: Process) {
        process.ended().await;
        let again = {
            let mut state = self.state.lock().await;
            if state.host.as_ref().is_none_or(|host| host.number != number) {
                return;
            }
            state.host = None;
            for device in state.record.host_off() {
                self.tell(event("DEVICE_DELETED", json!({ "device": device })));
            }
            if self.personality.dpu_shares_power {
                self.lose_dpu(&mut state).await;
            }
            self.power.send_replace(Power::Off);
            std::mem::take(&mut state.power_cycle)
        };
        if again && let Err(error) = self.switch_on_again().await {
            tracing::error!("the host stays off: {error:#}");
        }
    }

    /// [`Machine::switch_on`] with a type that has a name: a start ends in the next one, without end.
    fn switch_on_again(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Result<()>> + Send>> {
        Box::pin(async move { self.switch_on().await })
    }

    /// The DPU goes down with the host and takes along what it presented.
    async fn lose_dpu(&self, state: &mut State) {
        let taps = state.record.clear();
        self.remove_taps(&taps).await;
        if let Some(dpu) = &self.config.dpu
            && let Err(error) = inside::switch_dpu(dpu, false).await
        {
            tracing::error!("the DPU keeps running while its host is off: {error:#}");
        }
    }
}
