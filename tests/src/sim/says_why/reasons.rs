//! The reasons of the network: those that its decisions give, read where they are written, so that none that comes is forgotten.

use planner::reason::kind_of;
use std::collections::BTreeSet;
use std::path::Path;

/// No state of the simulation lasts in which these are said. Each is tested where it is decided:
///
/// | reason | why it does not last | decided, and tested, in |
/// |---|---|---|
/// | `AddressStillShared` | the other VNic's rows are written in the next moment; while they cannot be, neither can this VNic's | `planner/network/port.rs` |
/// | `Creating` | the Vpc `default` of a namespace is created in the next moment, or the API server is away and nothing is said at all | `controller/network/subnets.rs`, by every run that begins |
/// | `DpuNotReady` | an agent that renews its Lease and says that it is not ready says what its own parts say, which is not of the network | `planner/network/pods/mod.rs` |
/// | `WorkerLeaving` | a machine that is deleted or moves ends that by itself; `workers.rs` has a pod go through both | `planner/network/pods/worker.rs` |
pub const WITHOUT_CASE: [&str; 4] = ["AddressStillShared", "Creating", "DpuNotReady", "WorkerLeaving"];

/// Of the planner, and those that the controller says of itself.
const DECIDED_IN: [&str; 2] = ["../planner/src/network", "../controller/src/network"];

/// Their names.
pub fn of_network() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    DECIDED_IN.iter().for_each(|folder| read(&here.join(folder), &mut all));
    all
}

fn read(folder: &Path, all: &mut BTreeSet<String>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("it can be listed").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match name {
            "tests" | "tests.rs" => {}
            _ if path.is_dir() => read(&path, all),
            _ if name.ends_with(".rs") => {
                let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
                all.extend(named(&text).filter(|name| kind_of(name).is_some()).map(str::to_owned));
            }
            _ => {}
        }
    }
}

/// What comes behind the name of one of the three sets, in what is no test.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let sets = ["Waiting::", "Blocked::", "Failed::"];
    let behind = sets.into_iter().flat_map(move |set| code.split(set).skip(1));
    behind.map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default())
}
