//! What every implementation of [`Bmc`] must do.
//!
//! The suite may find the host in any state; it leaves it off, with the boot configuration that it found and without a medium.

use super::{Sleep, eventually};
use crate::{Bmc, ErrorClass, PortError};
use async_trait::async_trait;
use planner::host::{
    BootChange, BootConfiguration, BootMode, BootSource, HostObserved, Lack, MediaUrl, Medium, MediumChange,
    PowerAction, PowerState,
};
use std::collections::BTreeSet;
use std::time::Duration;

/// What the part behind the port can do; it must do the rest.
#[derive(Debug, Clone)]
pub struct Abilities {
    /// What it does not offer. Forced power-off and power-on are needed by the suite itself; a boot order has two entries at least.
    pub lacks: BTreeSet<Lack>,
    /// Boot overrides can be told apart, once from continuous, and ended again.
    pub override_ends: bool,
    /// The firmware takes a boot order over in its next POST, and not before.
    pub order_is_pending: bool,
    /// The guest obeys a soft power-off.
    pub guest_obeys: bool,
    /// How long after it accepted an action the part may still show the old state.
    pub settles_within: Duration,
}

/// The BMC under test and its surroundings.
#[async_trait]
pub trait Bench: Sleep {
    fn abilities(&self) -> Abilities;

    async fn connect(&self) -> Box<dyn Bmc>;

    /// The same BMC with a wrong password, and that password; `None` where there are no credentials.
    async fn with_wrong_password(&self) -> Option<(Box<dyn Bmc>, String)>;

    /// A BMC at an address where nobody listens; `None` where there are no addresses.
    async fn absent(&self) -> Option<Box<dyn Bmc>>;

    /// Two images that a BMC with a virtual drive can read.
    fn images(&self) -> [MediaUrl; 2] {
        ["http://images.example/first.iso", "http://images.example/second.iso"]
            .map(|url| MediaUrl::parse(url).expect("a URL"))
    }
}

/// Panics at the first promise that is not kept.
pub async fn run(bench: &dyn Bench) {
    let bmc = bench.connect().await;
    power(bench, bmc.as_ref()).await;
    let seen = observe(bmc.as_ref()).await;
    let (lacks, found) = (seen.lacks.clone(), seen.boot.clone());
    assert_eq!(lacks, bench.abilities().lacks, "what the BMC says that it lacks");
    if seen.lacks(Lack::BootOptions) {
        assert_eq!(found.options, [], "it is said to have no list of boot options");
    }
    if seen.lacks(Lack::BootOrder) {
        no_boot_order(bmc.as_ref()).await;
    } else {
        boot_order(bench, bmc.as_ref(), &found).await;
    }
    overrides(bench, bmc.as_ref(), &found).await;
    virtual_media(bench).await;
    refusals(bench).await;
}

fn class(result: Result<(), PortError>) -> Option<ErrorClass> {
    result.err().map(|e| e.class)
}

async fn observe(bmc: &dyn Bmc) -> HostObserved {
    bmc.observe().await.unwrap_or_else(|e| panic!("observe: {e}"))
}

async fn act(bench: &dyn Bench, bmc: &dyn Bmc, action: PowerAction, state: PowerState) {
    bmc.power(action).await.unwrap_or_else(|e| panic!("{action:?}: {e}"));
    eventually(bench, bench.abilities().settles_within, &format!("{state:?} after {action:?}"), async || {
        let seen = observe(bmc).await.power;
        if seen == state { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
}

async fn power(bench: &dyn Bench, bmc: &dyn Bmc) {
    use PowerAction::{ForceOff, On, SoftOff, WarmReset};
    let lacks = |action| bench.abilities().lacks.contains(&Lack::Power(action));
    act(bench, bmc, ForceOff, PowerState::Off).await;
    bmc.power(ForceOff).await.expect("ForceOff of a host that is off");
    bmc.power(SoftOff).await.expect("SoftOff of a host that is off");
    assert_eq!(class(bmc.power(WarmReset).await), Some(ErrorClass::Conflict), "WarmReset of a host that is off");
    assert_eq!(observe(bmc).await.power, PowerState::Off, "nothing was asked for, so nothing may have happened");

    act(bench, bmc, On, PowerState::On).await;
    bmc.power(On).await.expect("On of a host that is on");
    assert_eq!(observe(bmc).await.power, PowerState::On, "On is no reset");
    for lacking in [WarmReset, SoftOff].into_iter().filter(|action| lacks(*action)) {
        assert_eq!(class(bmc.power(lacking).await), Some(ErrorClass::Unsupported), "{lacking:?} is not offered");
        assert_eq!(observe(bmc).await.power, PowerState::On, "{lacking:?} was refused, and did something");
    }
    if !lacks(WarmReset) {
        act(bench, bmc, WarmReset, PowerState::On).await;
    }
    if lacks(SoftOff) {
        // Refused above.
    } else if bench.abilities().guest_obeys {
        act(bench, bmc, SoftOff, PowerState::Off).await;
        act(bench, bmc, On, PowerState::On).await;
    } else {
        bmc.power(SoftOff).await.expect("SoftOff is accepted, whatever the guest then does");
    }
    act(bench, bmc, ForceOff, PowerState::Off).await;
}

async fn change(bench: &dyn Bench, bmc: &dyn Bmc, change: &BootChange, expected: impl Fn(&BootConfiguration) -> bool) {
    bmc.configure_boot(change).await.unwrap_or_else(|e| panic!("{change:?}: {e}"));
    eventually(bench, bench.abilities().settles_within, &format!("{change:?} is read back"), async || {
        let boot = observe(bmc).await.boot;
        if expected(&boot) { Ok(()) } else { Err(format!("{boot:?}")) }
    })
    .await;
}

async fn boot_order(bench: &dyn Bench, bmc: &dyn Bmc, found: &BootConfiguration) {
    assert!(found.order.len() >= 2, "the suite needs two entries in the boot order: {found:?}");
    for option in &found.options {
        assert!(!option.reference.is_empty() && !option.display_name.is_empty(), "{option:?}");
    }
    let last = found.order[found.order.len() - 1].clone();
    let mut expected = found.order.clone();
    expected.rotate_right(1);
    let first = BootChange::First { reference: last };
    for _ in 0..2 {
        change(bench, bmc, &first, |boot| boot.coming() == expected).await;
        let boot = observe(bmc).await.boot;
        match bench.abilities().order_is_pending {
            true => assert_eq!((&boot.order, boot.pending.as_ref()), (&found.order, Some(&expected)), "before a POST"),
            false => assert_eq!((&boot.order, boot.pending.as_ref()), (&expected, None), "no POST is needed"),
        }
    }

    let unknown = BootChange::First { reference: "BootFFFE".to_owned() };
    let refused = class(bmc.configure_boot(&unknown).await);
    assert_eq!(refused, Some(ErrorClass::NotFound), "an option that the BMC does not know");
    assert_eq!(observe(bmc).await.boot.coming(), expected, "a refused change changed something");
    if bench.abilities().order_is_pending {
        post(bench, bmc, |boot| boot.order == expected && boot.pending.is_none()).await;
    }

    // Of an order that is older than the last option: that one stays, after the others.
    let [older @ .., _] = found.order.as_slice() else { return };
    for before in [older, &found.order] {
        let restore = BootChange::Restore { order: before.to_vec() };
        change(bench, bmc, &restore, |boot| boot.coming() == found.order).await;
    }
    if bench.abilities().order_is_pending {
        post(bench, bmc, |boot| boot.order == found.order && boot.pending.is_none()).await;
    }
}

/// The host is started, until the BMC shows what its POST made of the settings.
async fn post(bench: &dyn Bench, bmc: &dyn Bmc, expected: impl Fn(&BootConfiguration) -> bool) {
    act(bench, bmc, PowerAction::On, PowerState::On).await;
    eventually(bench, bench.abilities().settles_within, "the boot configuration after POST", async || {
        let boot = observe(bmc).await.boot;
        if expected(&boot) { Ok(()) } else { Err(format!("{boot:?}")) }
    })
    .await;
    act(bench, bmc, PowerAction::ForceOff, PowerState::Off).await;
}

async fn no_boot_order(bmc: &dyn Bmc) {
    assert_eq!(observe(bmc).await.boot.order, Vec::<String>::new(), "it is said to have no boot order");
    let first = BootChange::First { reference: "Boot0001".to_owned() };
    assert_eq!(class(bmc.configure_boot(&first).await), Some(ErrorClass::Unsupported), "there is no boot order");
}

async fn overrides(bench: &dyn Bench, bmc: &dyn Bmc, found: &BootConfiguration) {
    let source = |of: Option<planner::host::BootOverride>| of.map(|of| of.source);
    let restore = BootChange::Restore { order: found.order.clone() };
    let as_found =
        |boot: &BootConfiguration| boot.always.is_none() && boot.next.is_none() && boot.coming() == found.order;
    let mode = BootMode::Uefi;
    if found.allowed_always.contains(&BootSource::Hdd) {
        let always = BootChange::Always { source: BootSource::Hdd, mode };
        for _ in 0..2 {
            change(bench, bmc, &always, |boot| source(boot.always) == Some(BootSource::Hdd)).await;
        }
        if bench.abilities().override_ends {
            change(bench, bmc, &restore, as_found).await;
        }
    }
    if let (Some(once), true) = (found.allowed_next.first().copied(), bench.abilities().override_ends) {
        let next = BootChange::Next { source: once, mode };
        for _ in 0..2 {
            change(bench, bmc, &next, |boot| source(boot.next) == Some(once) && boot.always.is_none()).await;
        }
        post(bench, bmc, |boot| boot.next.is_none()).await;
        change(bench, bmc, &next, |boot| source(boot.next) == Some(once)).await;
        change(bench, bmc, &restore, as_found).await;
    }
    let other = BootChange::Next { source: BootSource::Other, mode };
    assert_eq!(class(bmc.configure_boot(&other).await), Some(ErrorClass::Unsupported), "Other names no boot source");
}

/// The part of [`run`] about the virtual drive.
pub async fn virtual_media(bench: &dyn Bench) {
    let bmc = bench.connect().await;
    let bmc = bmc.as_ref();
    let lacks = observe(bmc).await.lacks(Lack::VirtualMedia);
    assert_eq!(lacks, bench.abilities().lacks.contains(&Lack::VirtualMedia), "what the BMC says that it lacks");
    if lacks {
        return no_virtual_media(bench, bmc).await;
    }
    let [first, second] = bench.images().map(MediumChange::Insert);
    for change in [MediumChange::Eject, first.clone(), first, second, MediumChange::Eject, MediumChange::Eject] {
        eventually(bench, bench.abilities().settles_within, &format!("{change} is accepted"), async || {
            match bmc.change_medium(&change).await {
                Err(e) if e.class == ErrorClass::Busy => Err(e.to_string()),
                result => result.map_err(|e| panic!("{change}: {e}")),
            }
        })
        .await;
        eventually(bench, bench.abilities().settles_within, &format!("{change} is read back"), async || {
            let medium = observe(bmc).await.medium;
            if change.is_shown(&medium) { Ok(()) } else { Err(medium.to_string()) }
        })
        .await;
    }
}

async fn no_virtual_media(bench: &dyn Bench, bmc: &dyn Bmc) {
    let [image, _] = bench.images();
    for change in [MediumChange::Insert(image), MediumChange::Eject] {
        assert_eq!(
            class(bmc.change_medium(&change).await),
            Some(ErrorClass::Unsupported),
            "{change}: there is no drive"
        );
    }
    assert_eq!(observe(bmc).await.medium, Medium::Unknown, "there is no drive");
}

async fn refusals(bench: &dyn Bench) {
    if let Some((bmc, password)) = bench.with_wrong_password().await {
        let read = bmc.observe().await.expect_err("observe with a wrong password");
        let written = bmc.power(PowerAction::On).await.expect_err("power with a wrong password");
        for e in [read, written] {
            assert_eq!(e.class, ErrorClass::Unauthorized, "{e}");
            assert!(!e.to_string().contains(&password), "a message shows the password");
        }
    }
    if let Some(bmc) = bench.absent().await {
        let e = bmc.observe().await.expect_err("observe where nobody listens");
        assert_eq!(e.class, ErrorClass::Unreachable, "{e}");
    }
}
