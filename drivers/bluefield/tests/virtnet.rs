//! virtio-net functions by `virtnet`: the sandbox's program of that name, real network devices, rtnetlink as it is.

mod dpu;

use async_trait::async_trait;
use bluefield::virtnet::{Config, Program, Queues, VirtnetNics};
use dpu::{has_device, host_sees_link, ip, nic, on_a_dpu};
use planner::exposure::{FunctionKind, Presence};
use ports::conformance::{Sleep, emulation};
use ports::emulation::Backend;
use ports::{Emulation, ErrorClass};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

struct Bench {
    folder: TempDir,
}

/// Built with the sandbox.
fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let program = own.parent()?.parent()?.join("virtnet");
    program.exists().then_some(program)
}

impl Bench {
    fn new(program: &Path, dpu: &Value) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::symlink(program, folder.path().join("virtnet")).expect("a link");
        let bench = Self { folder };
        bench.write(dpu);
        bench
    }

    fn write(&self, dpu: &Value) {
        std::fs::write(self.folder.path().join("virtnet.json"), dpu.to_string()).expect("write");
    }

    fn read(&self) -> Value {
        let text = std::fs::read_to_string(self.folder.path().join("virtnet.json")).expect("read");
        serde_json::from_str(&text).expect("JSON")
    }

    fn change(&self, change: impl FnOnce(&mut Value)) {
        let mut dpu = self.read();
        change(&mut dpu);
        self.write(&dpu);
    }

    fn nics(&self) -> VirtnetNics {
        let program = Program { file: self.folder.path().join("virtnet"), arguments: Vec::new() };
        let queues = Queues { pairs: 4, length: 256 };
        VirtnetNics::new(Config { program, parent: "mlx5_0".to_owned(), queues, ports: 31 })
    }

    fn plugs(&self) -> usize {
        self.read()["calls"].as_array().into_iter().flatten().filter(|call| **call == "hotplug").count()
    }

    /// A running host lets go of what is to leave.
    fn release(&self) {
        self.change(|dpu| {
            let (gone, left): (Vec<Value>, Vec<Value>) =
                dpu["devices"].as_array().cloned().unwrap_or_default().into_iter().partition(|d| d["leaving"] == true);
            for device in gone {
                ip(&["link", "del", device["representor"].as_str().expect("a name")]);
            }
            dpu["devices"] = json!(left);
        });
    }
}

#[async_trait]
impl Sleep for Bench {
    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

#[async_trait]
impl emulation::Bench for Bench {
    async fn connect(&self) -> Box<dyn Emulation> {
        Box::new(self.nics())
    }

    async fn backend(&self, _: u64) -> Backend {
        Backend::Path("/nonexistent/volume".into())
    }

    async fn grow(&self, _: &Backend, _: u64) {}

    async fn let_host_release(&self) {
        self.release();
    }

    async fn has_device(&self, name: &str) -> Option<bool> {
        Some(has_device(name))
    }
}

/// On a DPU whose `virtnet` is so, if the program is there.
fn with_virtnet<F: Future<Output = ()>>(test: &str, dpu: Value, body: impl FnOnce(Bench) -> F + Send + 'static) {
    let Some(program) = program() else {
        eprintln!("SKIP {test}: the sandbox's program virtnet is not built");
        return;
    };
    on_a_dpu(test, move || body(Bench::new(&program, &dpu)));
}

#[test]
fn keeps_the_ports_promises() {
    for newer in [false, true] {
        let dpu = json!({"ports": 4, "ports_of_others": 1, "host": "running", "newer": newer});
        with_virtnet("keeps_the_ports_promises", dpu, |bench| async move {
            emulation::run(&bench).await;
        });
    }
}

#[test]
fn a_plug_that_was_interrupted_is_found_by_its_address() {
    let dpu = json!({"ports": 31, "host": "off"});
    with_virtnet("a_plug_that_was_interrupted_is_found_by_its_address", dpu, |bench| async move {
        let nics = bench.nics();
        nics.expose_nic(&nic(1)).await.expect("expose");
        ip(&["link", "set", "en3f0pf0sf1001", "alias", ""]);
        assert_eq!(
            nics.list().await,
            Ok(Vec::new()),
            "as after a reboot of the DPU: it is nobody's, and stays plugged"
        );
        bench.nics().expose_nic(&nic(1)).await.expect("expose again");
        assert_eq!(bench.plugs(), 1);
        let listed = nics.list().await.expect("list");
        assert_eq!(listed[0].representor.as_deref(), Some("en3f0pf0sf1001"));
        assert!(!host_sees_link("v1"), "the system had set it up");
        nics.set_link(&nic(1).id, true).await.expect("up");
        assert!(host_sees_link("v1"));
    });
}

#[test]
fn a_host_that_keeps_a_function_is_waited_for() {
    let dpu = json!({"ports": 2, "host": "running", "newer": true});
    with_virtnet("a_host_that_keeps_a_function_is_waited_for", dpu, |bench| async move {
        let nics = bench.nics();
        nics.expose_nic(&nic(1)).await.expect("expose");
        nics.set_link(&nic(1).id, true).await.expect("up");
        nics.hide(&nic(1).id, FunctionKind::Nic).await.expect("hide");
        assert!(!host_sees_link("v1"), "its traffic ends at once");
        assert_eq!(nics.list().await.expect("list")[0].presence, Presence::Leaving);
        let again = nics.expose_nic(&nic(1)).await.expect_err("it is leaving");
        assert_eq!(again.class, ErrorClass::Busy, "{again}");
        bench.release();
        assert_eq!(nics.list().await, Ok(Vec::new()));
        assert_eq!(nics.capabilities().await.map(|all| (all.nics, all.switch_ports)), Ok((2, 2)));
    });
}

#[test]
fn a_service_that_does_not_run_hides_nothing() {
    let dpu = json!({"ports": 2, "host": "running", "stopped": true});
    with_virtnet("a_service_that_does_not_run_hides_nothing", dpu, |bench| async move {
        let down = bench.nics().list().await.expect_err("the service does not run");
        assert!(down.class == ErrorClass::Unreachable && down.message.contains("virtio-net-controller"), "{down}");
        let missing = Program { file: "/nonexistent/virtnet".into(), arguments: Vec::new() };
        let queues = Queues { pairs: 4, length: 256 };
        let config = Config { program: missing, parent: "mlx5_0".to_owned(), queues, ports: 31 };
        let absent = VirtnetNics::new(config).list().await.expect_err("no such program");
        assert!(absent.message.contains("/nonexistent/virtnet"), "{absent}");
    });
}
