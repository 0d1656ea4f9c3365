//! A server with a disk of its own, which still holds an old system and comes first in the factory's boot order.

use super::{Personality, WITH_LOCAL_DISK};

pub const PERSONALITY: Personality = Personality { name: "local-disk", model: "Virtual Server L", ..WITH_LOCAL_DISK };
