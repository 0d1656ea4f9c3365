//! Numbers for /metrics, in the names that dashboards of controller-runtime know where there is one.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const BUCKETS: [f64; 8] = [0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

#[derive(Default, Clone)]
struct Times {
    count: u64,
    sum: f64,
    buckets: [u64; BUCKETS.len()],
}

#[derive(Default)]
struct State {
    reconciles: BTreeMap<(&'static str, &'static str), u64>,
    times: BTreeMap<&'static str, Times>,
    power: BTreeMap<&'static str, u64>,
    leader: Option<u64>,
}

#[derive(Default)]
pub struct Metrics {
    state: Mutex<State>,
}

impl Metrics {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn reconciled(&self, controller: &'static str, took: Duration, error: Option<&'static str>) {
        let mut state = self.state();
        *state.reconciles.entry((controller, error.unwrap_or("success"))).or_default() += 1;
        let times = state.times.entry(controller).or_default();
        times.count += 1;
        times.sum += took.as_secs_f64();
        for (bucket, limit) in times.buckets.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(took.as_secs_f64() <= limit);
        }
    }

    pub fn power(&self, action: &'static str) {
        *self.state().power.entry(action).or_default() += 1;
    }

    pub fn leads(&self, token: u64) {
        self.state().leader = Some(token);
    }

    /// The text format of Prometheus. `depths` are the queues' lengths.
    pub fn text(&self, depths: &[(&str, usize)], hosts: usize) -> String {
        let state = self.state();
        let mut out = String::new();
        let _ = writeln!(out, "# TYPE leader_election_master_status gauge");
        let _ = writeln!(
            out,
            "leader_election_master_status{{name=\"metalplane-controller\"}} {}",
            u8::from(state.leader.is_some())
        );
        let _ = writeln!(
            out,
            "# TYPE metalplane_fencing_token gauge\nmetalplane_fencing_token {}",
            state.leader.unwrap_or_default()
        );
        let _ = writeln!(out, "# TYPE controller_runtime_reconcile_total counter");
        for ((controller, result), count) in &state.reconciles {
            let _ = writeln!(
                out,
                "controller_runtime_reconcile_total{{controller=\"{controller}\",result=\"{result}\"}} {count}"
            );
        }
        let _ = writeln!(out, "# TYPE controller_runtime_reconcile_time_seconds histogram");
        for (controller, times) in &state.times {
            let name = "controller_runtime_reconcile_time_seconds";
            for (bucket, limit) in times.buckets.iter().zip(BUCKETS) {
                let _ = writeln!(out, "{name}_bucket{{controller=\"{controller}\",le=\"{limit}\"}} {bucket}");
            }
            let _ = writeln!(out, "{name}_bucket{{controller=\"{controller}\",le=\"+Inf\"}} {}", times.count);
            let _ = writeln!(out, "{name}_sum{{controller=\"{controller}\"}} {}", times.sum);
            let _ = writeln!(out, "{name}_count{{controller=\"{controller}\"}} {}", times.count);
        }
        let _ = writeln!(out, "# TYPE workqueue_depth gauge");
        for (name, depth) in depths {
            let _ = writeln!(out, "workqueue_depth{{name=\"{name}\"}} {depth}");
        }
        let _ = writeln!(out, "# TYPE metalplane_bmcs_watched gauge\nmetalplane_bmcs_watched {hosts}");
        let _ = writeln!(out, "# TYPE metalplane_power_actions_total counter");
        for (action, count) in &state.power {
            let _ = writeln!(out, "metalplane_power_actions_total{{action=\"{action}\"}} {count}");
        }
        out
    }
}
