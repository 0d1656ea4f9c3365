//! The ways to have a BMC boot its server into the installer, in the order in which they are tried ([`super::netboot`]).

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rung {
    Once,
    Always,
    Option,
    Medium,
}

impl Rung {
    pub(super) const ALL: [Self; 4] = [Self::Once, Self::Always, Self::Option, Self::Medium];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Once => "Once",
            Self::Always => "Continuous",
            Self::Option => "BootOption",
            Self::Medium => "VirtualMedia",
        }
    }

    pub(super) fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rung| rung.word() == word)
    }

    pub(super) fn told(self) -> &'static str {
        match self {
            Self::Once => "a boot source override for one boot",
            Self::Always => "a continuous boot source override",
            Self::Option => "the boot option of its NIC first in the boot order",
            Self::Medium => "the installer's ISO in its virtual CD drive",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rung_is_read_as_it_was_written() {
        for rung in Rung::ALL {
            assert_eq!(Rung::parse(rung.word()), Some(rung));
        }
        assert_eq!(Rung::parse("once"), None);
    }
}
