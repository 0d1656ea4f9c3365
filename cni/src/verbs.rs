//! The verbs. What each promises is the table in docs/design/network.md, section 9.

use crate::agent;
use crate::error::Error;
use crate::namespace;
use crate::request::{Config, Environment};
use crate::result;
use crate::state::{Attached, State};
use proto::interfaces::v1alpha1::Interface;

pub(crate) async fn add(environment: &Environment, config: &Config) -> Result<String, Error> {
    let is_of_its_own = config.is_of_its_own();
    let annotations = match is_of_its_own {
        true => Some(config.question(environment.attachment()?.1)?),
        false => config.asking(),
    };
    let Some(annotations) = annotations else {
        return config.previous().map(|previous| result::unchanged(&previous));
    };
    config.check()?;
    let previous = if is_of_its_own { result::none(&config.cni_version) } else { config.previous()? };
    let (container_id, ifname) = environment.attachment()?;
    let pod = environment.pod()?;
    give_back_functions(config, &pod.uid, container_id)?;
    let interfaces = agent::attach(&config.socket, &pod, container_id, annotations).await?;
    let taken = interfaces.iter().find(|interface| interface.name == ifname);
    if let Some(Interface { name, .. }) = taken.filter(|_| !is_of_its_own) {
        return Err(Error::invalid(format!("annotation metalplane.io/networks: '{name}' is the cluster network's")));
    }
    interfaces.iter().filter(|_| is_of_its_own).try_for_each(|interface| config.agrees(interface))?;
    let state = State {
        network: config.name.clone(),
        container_id: container_id.to_owned(),
        ifname: ifname.to_owned(),
        pod_uid: pod.uid,
        netns: environment.netns.clone(),
        interfaces: interfaces.iter().map(attached).collect(),
    };
    // First: what a crash leaves is found by DEL.
    state.write(&config.state_directory)?;
    for interface in &interfaces {
        if let Err(error) = namespace::attach(&environment.netns, interface).await {
            return Err(undone(config, &state, error));
        }
    }
    let told = match is_of_its_own {
        true => result::own(previous, &config.cni_version, &environment.netns, &interfaces),
        false => result::behind(previous, &config.cni_version, &environment.netns, &interfaces),
    };
    told.map_err(|error| undone(config, &state, error))
}

/// An agent takes a device that it has made from another sandbox of the pod, and makes it anew. A function there is only one.
fn give_back_functions(config: &Config, pod_uid: &str, container_id: &str) -> Result<(), Error> {
    // Of a file that cannot be read the DEL of its sandbox says so; no other pod waits for that.
    for other in State::all(&config.state_directory).unwrap_or_default() {
        if other.pod_uid == pod_uid && other.container_id != container_id {
            let functions: Vec<Attached> = other.interfaces.into_iter().filter(|one| one.function).collect();
            namespace::detach(&other.netns, &functions)?;
        }
    }
    Ok(())
}

fn attached(interface: &Interface) -> Attached {
    Attached {
        name: interface.name.clone(),
        device: interface.device.clone(),
        mac_address: interface.mac_address.clone(),
        addresses: interface.addresses.clone(),
        configured_by_pod: interface.configured_by_pod,
        function: interface.function,
    }
}

/// Takes back what was begun. What cannot be is left to DEL, which a runtime calls after an ADD that failed.
fn undone(config: &Config, state: &State, error: Error) -> Error {
    // By its MAC address, which nobody in the pod has changed yet: a device of the pod's own by such a name stays.
    let as_given = |one: &Attached| Attached { configured_by_pod: false, ..one.clone() };
    let begun: Vec<Attached> = state.interfaces.iter().map(as_given).collect();
    match namespace::detach(&state.netns, &begun).and_then(|()| state.remove(&config.state_directory)) {
        Ok(()) => error,
        Err(left) => Error { message: format!("{}; and to undo it: {}", error.message, left.message), ..error },
    }
}

pub(crate) async fn del(environment: &Environment, config: &Config) -> Result<(), Error> {
    let (container_id, ifname) = environment.attachment()?;
    match State::read(&config.state_directory, container_id, ifname)? {
        Some(state) => end(config, &state).await,
        None => Ok(()),
    }
}

/// Device first, then the agent, then the file: whatever is interrupted is done again by the next call.
async fn end(config: &Config, state: &State) -> Result<(), Error> {
    namespace::detach(&state.netns, &state.interfaces)?;
    agent::detach(&config.socket, &state.pod_uid, &state.container_id).await;
    state.remove(&config.state_directory)
}

pub(crate) async fn check(environment: &Environment, config: &Config) -> Result<(), Error> {
    let (container_id, ifname) = environment.attachment()?;
    match State::read(&config.state_directory, container_id, ifname)? {
        Some(state) => namespace::check(&environment.netns, &state.interfaces),
        None if config.asking().is_some() || config.names_one() => {
            Err(Error::changed("the pod asks for NICs, and ADD has attached none to this sandbox"))
        }
        None => Ok(()),
    }
}

/// Of this network, what the runtime does not know.
pub(crate) async fn gc(config: &Config) -> Result<(), Error> {
    for state in State::all(&config.state_directory)? {
        let is = |valid: &crate::request::Attachment| {
            valid.container_id == state.container_id && valid.ifname == state.ifname
        };
        if state.network == config.name && !config.valid_attachments.iter().any(is) {
            end(config, &state).await?;
        }
    }
    Ok(())
}

/// Chained, the plugin is always ready: a node of which it said otherwise would start no pod at all.
pub(crate) async fn status(config: &Config) -> Result<(), Error> {
    if !config.required {
        return Ok(());
    }
    agent::answers(&config.socket).await.map_err(Error::unavailable)
}
