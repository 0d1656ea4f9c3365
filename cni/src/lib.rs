//! The CNI plugin: NICs in Vpcs for pods that ask for them, beside the cluster network (docs/design/network.md, section 9).
//!
//! It is the last of the cluster network's list of plugins (CNI specification 1.1.0, section 4) and never the first. A pod that asks for nothing, by its
//! annotations, gets what the plugins before said, and the agent is not asked: nothing of ours can stop such a pod.
//!
//! | file | what |
//! |---|---|
//! | `request.rs` | environment and configuration, judged |
//! | `verbs.rs` | ADD, DEL, CHECK, GC, STATUS, VERSION |
//! | `agent.rs` | the agent of this node, which has everything but the pod's network namespace |
//! | `namespace.rs` | devices in the pod's network namespace |
//! | `state.rs` | what ADD left for DEL: a file for each sandbox that got something |
//! | `result.rs` | what the runtime is told |
//! | `install.rs` | not a call of a runtime: puts the plugin in place on a node |
//! | `error.rs` | the errors and their codes |
//!
//! A call is a process: one thread waits for it, and one more is in the pod's network namespace.

mod agent;
mod error;
mod install;
mod namespace;
mod request;
mod result;
mod state;
mod verbs;

pub use error::Error;
pub use install::Install;
pub use request::Environment;

use request::{Config, Verb};

/// One call; what goes to the standard output.
pub fn run(environment: &Environment, stdin: std::io::Result<Vec<u8>>) -> Result<String, Error> {
    let verb = Verb::of(environment)?;
    if verb == Verb::Version {
        return Ok(result::versions());
    }
    let stdin = stdin.map_err(|error| Error::io(format!("read the configuration: {error}")))?;
    let config = Config::read(&stdin)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::io(format!("start: {error}")))?;
    runtime.block_on(async {
        match verb {
            Verb::Add => verbs::add(environment, &config).await,
            Verb::Del => verbs::del(environment, &config).await.map(|()| String::new()),
            Verb::Check => verbs::check(environment, &config).await.map(|()| String::new()),
            Verb::Gc => verbs::gc(&config).await.map(|()| String::new()),
            Verb::Status => verbs::status(&config).await.map(|()| String::new()),
            Verb::Version => Ok(result::versions()),
        }
    })
}
